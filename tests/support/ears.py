"""A receiver that keeps what it hears, for tests of transports."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from mainspring.wire.transport import Connection, Lost

PATIENCE_S = 30.0


class Ear:
    """`answer(ear, stream, data)` is called for every stream that ends."""

    def __init__(self, answer: "Callable[[Ear, int, bytes], None] | None" = None) -> None:
        self.connection: Connection
        self.data: dict[int, bytearray] = {}
        self.ended: list[int] = []
        self.resets: list[int] = []
        self.lost: list[Lost] = []
        self.could_write = 0
        self._answer = answer

    def accept(self, connection: Connection) -> "Ear":
        self.connection = connection
        return self

    def data_received(self, stream: int, data: bytes, end: bool) -> None:
        self.data.setdefault(stream, bytearray()).extend(data)
        if end:
            self.ended.append(stream)
            if self._answer is not None:
                self._answer(self, stream, bytes(self.data[stream]))

    def stream_reset(self, stream: int) -> None:
        self.resets.append(stream)

    def writable(self) -> None:
        self.could_write += 1

    def connection_lost(self, lost: Lost) -> None:
        self.lost.append(lost)


def echo(ear: Ear, stream: int, data: bytes) -> None:
    ear.connection.write(stream, data, end=True)


class Door:
    """A listener's accept: an ear for each that comes."""

    def __init__(self, answer: Callable[[Ear, int, bytes], None] | None = echo) -> None:
        self.ears: list[Ear] = []
        self._answer = answer

    def accept(self, connection: Connection) -> Ear:
        ear = Ear(self._answer)
        self.ears.append(ear)
        return ear.accept(connection)


async def until(condition: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Fails the test where it never comes true."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.005)


def run(body: Coroutine[Any, Any, None]) -> None:
    """Then no socket may be left open on either side."""

    async def whole() -> None:
        selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
        await asyncio.wait_for(body, 120.0)
        await until(lambda: len(selector.get_map()) == 1)  # the loop's own

    asyncio.run(whole())
