"""Keeps one link to the router for as long as the process lives: dials, waits for its end, dials again.

asyncio without decisions: when to dial again is `redial`'s, over which transport the dialer's.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Protocol

from mainspring.node.membership import Membership
from mainspring.node.redial import Ending, Redial
from mainspring.wire.errors import HOPELESS, Close, WireError
from mainspring.wire.link import Closed
from mainspring.wire.transport import Accept, Connection

log = logging.getLogger(__name__)
Ended = Callable[[Closed, float | None], None]


class Dials(Protocol):
    """`wire.dial.Dialer`, or anything like it."""

    async def dial(self, host: str, port: int, accept: Accept) -> Connection: ...


class Home:
    """`member(ended)` makes one link's end; `chance()` draws from [0, 1)."""

    def __init__(
        self,
        dialer: Dials,
        address: tuple[str, int],
        member: Callable[[Ended], Membership],
        *,
        redial: Redial | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._dialer, self._address, self._member = dialer, address, member
        self._redial = redial or Redial()
        self._chance = chance
        self._leaving = asyncio.Event()
        self._farewell = (0.0, "")
        self._current: Membership | None = None

    async def run(self) -> None:
        """Until `leave`."""
        while not self._leaving.is_set():
            ending = await self._one_link()
            if self._leaving.is_set():
                return
            delay_s = self._redial.next(ending, self._chance())
            level = logging.ERROR if ending.close in HOPELESS else logging.WARNING
            log.log(level, "%s; dialling again in %.2f s", _words(ending), delay_s)
            await self._pause(delay_s)

    def leave(self, within_s: float, reason: str) -> None:
        """Drain and go; `run` returns then. A second call ends the link at once."""
        member = self._current
        if self._leaving.is_set() and member is not None:
            member.close(Close.GOODBYE, reason)
        self._leaving.set()
        self._farewell = within_s, reason
        if member is not None:
            member.drain(within_s, reason)

    async def _one_link(self) -> Ending:
        ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()

        def end(closed: Closed, lasted_s: float | None) -> None:
            if not ended.done():
                ended.set_result(Ending(closed.close, closed.message, lasted_s))

        member = self._member(end)
        try:
            dialling = asyncio.ensure_future(self._dialer.dial(*self._address, member.accept))
            leaving = asyncio.ensure_future(self._leaving.wait())
            await asyncio.wait({dialling, leaving}, return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            if not dialling.done():
                dialling.cancel()
                return Ending(None, "leaving")
            await dialling
        except ConnectionError as error:
            return Ending(None, str(error))
        except WireError as error:
            return Ending(error.close, error.message)
        self._current = member
        if self._leaving.is_set():  # told just as the router answered
            member.drain(*self._farewell)
        try:
            return await ended
        finally:
            self._current = None

    async def _pause(self, delay_s: float) -> None:
        try:
            await asyncio.wait_for(self._leaving.wait(), delay_s)
        except TimeoutError:
            return


def _words(ending: Ending) -> str:
    if ending.close is None:
        return f"no link: {ending.message}"
    lasted = "" if ending.lasted_s is None else f" after {ending.lasted_s:.1f} s"
    return f"the link ended{lasted} ({ending.close.name.lower()}: {ending.message})"
