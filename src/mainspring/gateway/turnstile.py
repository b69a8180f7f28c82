"""One text a turn of the loop, first come first served.

A request passes some eight turns of the loop, and reading and rendering its text is the long one. Requests that come
in a burst would all be rendered in one turn, and whoever is nearly done waits behind all of them, turn after turn: the
loop shares itself among the burst and everybody leaves at its end. Here one is let through a turn, so that answers,
and passes for nodes, go out between two texts, and the burst is left in the order in which it came.
"""

import asyncio
from collections import deque

APART = 6
"""Turns between two that wait: about as many as a request needs from its tokens to the pass on its way to a node, or
from the node's answer to the client's. Empty ones cost microseconds."""


class Turnstile:
    """Use from one loop. `waiting` is bounded by the requests that may be open (`limits.concurrent`)."""

    def __init__(self) -> None:
        self._line: deque[asyncio.Future[None]] = deque()
        self._taken = False
        """Somebody passed in this turn."""

    @property
    def waiting(self) -> int:
        return len(self._line)

    async def enter(self) -> None:
        """At once where nobody passed in this turn of the loop. Cancelled: the place in the line is given up."""
        loop = asyncio.get_running_loop()
        if not self._taken:
            self._taken = True
            loop.call_soon(self._next)
            return
        place: asyncio.Future[None] = loop.create_future()
        self._line.append(place)
        await place

    def _next(self, apart: int = 0) -> None:
        if apart and self._line:
            asyncio.get_running_loop().call_soon(self._next, apart - 1)
            return
        while self._line:
            place = self._line.popleft()
            if not place.done():
                place.set_result(None)
                asyncio.get_running_loop().call_soon(self._next, APART)
                return
        self._taken = False
