"""What a channel takes time and timers from: an asyncio loop has all of it, a simulation can."""

from collections.abc import Callable
from typing import Protocol


class Handle(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """An asyncio loop, or a simulation."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> Handle: ...

    def call_soon(self, callback: Callable[[], object], /) -> object: ...
