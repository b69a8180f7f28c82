"""Virtual time: a heap of calls. Ties run in the order they were made, so a seed decides everything."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class World:
    __slots__ = ("_heap", "_seq", "now_s")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._seq = 0
        self.now_s = 0.0

    def at(self, when_s: float, call: Callable[..., None], *args: Any) -> None:
        self._seq += 1
        heappush(self._heap, (max(when_s, self.now_s), self._seq, call, args))

    def after(self, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        self.at(self.now_s + delay_s, call, *args)

    def step(self) -> bool:
        """Run the next call; False when nothing is left."""
        if not self._heap:
            return False
        self.now_s, _, call, args = heappop(self._heap)
        call(*args)
        return True

    def peek_s(self) -> float | None:
        return self._heap[0][0] if self._heap else None
