"""The open connections of one endpoint: judged again while they last, closed together.

A certificate may be revoked or expire mid-connection. Every `check_s` each peer is held against the revocation list and
the wall clock (`Trust.complaint`), and is told `Close.CERTIFICATE` where it may stay no longer. The same look takes up
renewed certificates.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from mainspring.wire.errors import Close
from mainspring.wire.keyring import Keyring
from mainspring.wire.transport import Identity

log = logging.getLogger(__name__)


class Watched(Protocol):
    peer: Identity
    address: str

    @property
    def joined(self) -> bool:
        """False while the peer is not verified."""
        ...

    def close(self, close: Close, message: str = "") -> None: ...


class Watch:
    def __init__(self, keyring: Keyring, wall_s: Callable[[], float], check_s: float) -> None:
        self._keyring, self._wall_s, self._check_s = keyring, wall_s, check_s
        self._open: set[Watched] = set()
        self._empty = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._renewed = self._closed = False

    def start(self) -> None:
        if self._closed:
            return
        self._timer = asyncio.get_running_loop().call_later(self._check_s, self._look)

    def add(self, connection: Watched) -> None:
        self._open.add(connection)
        self._empty.clear()

    def discard(self, connection: Watched) -> None:
        self._open.discard(connection)
        if not self._open:
            self._empty.set()

    def renewed(self) -> bool:
        """True once after the keyring took up new credentials."""
        renewed, self._renewed = self._renewed, False
        return renewed

    def judge(self) -> None:
        """One look, now."""
        self._renewed = self._keyring.refresh() or self._renewed
        now_s = self._wall_s()
        for connection in list(self._open):
            if connection.joined and (complaint := self._keyring.trust.complaint(connection.peer, now_s)):
                peer = connection.peer
                log.warning("%s %s at %s is sent away: %s", peer.role, peer.name, connection.address, complaint)
                connection.close(Close.CERTIFICATE, complaint)

    def close(self) -> None:
        """Looks no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def stop(self, within_s: float) -> None:
        """Closes every connection and waits for them."""
        self.close()
        for connection in list(self._open):
            connection.close(Close.GOODBYE)
        if self._open:
            try:
                await asyncio.wait_for(self._empty.wait(), within_s)
            except TimeoutError:
                log.warning("%d connections did not end within %g s", len(self._open), within_s)

    def _look(self) -> None:
        try:
            self.judge()
        finally:
            self.start()
