"""Dialling with a choice of transport: QUIC, and TCP where UDP is blocked.

`auto` tries QUIC first. Where it gets no handshake and TCP to the same place does, UDP is blocked on the way: that is
said in the log, and TCP is taken at once for ten minutes, after which QUIC gets its chance with the next dial. Where
neither answers nothing was learnt: the router is away. A router that is not ours, or that refuses us, is no reason to
try another way. Nothing here waits or repeats: backoff is the caller's.
"""

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from mainspring.wire.quic import QuicTransport
from mainspring.wire.tcp import TcpTransport
from mainspring.wire.transport import Accept, Connection, Transport
from mainspring.wire.trust import Credentials

log = logging.getLogger(__name__)

Choice = Literal["auto", "quic", "tcp"]
CHOICES: tuple[Choice, ...] = ("auto", "quic", "tcp")
"""Of `--transport`."""
TCP_FOR_S = 600.0


class Fallback:
    """Which transport to try first, by what was seen. Pure: `now_s` is any monotone clock."""

    def __init__(self, choice: Choice = "auto") -> None:
        self.choice = choice
        self._tcp_until_s = float("-inf")

    def order(self, now_s: float) -> tuple[str, ...]:
        if self.choice != "auto":
            return (self.choice,)
        return ("tcp",) if now_s < self._tcp_until_s else ("quic", "tcp")

    def blocked(self, now_s: float) -> None:
        """TCP got through where QUIC did not."""
        self._tcp_until_s = now_s + TCP_FOR_S

    def unreachable(self) -> None:
        """Nothing got through: what was known of this network may be over."""
        self._tcp_until_s = float("-inf")


class Dialer:
    """Keeps what it learnt between dials: one for the life of a process."""

    def __init__(
        self, transports: Mapping[str, Transport], choice: Choice = "auto",
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._transports = transports
        self._fallback = Fallback(choice)
        self._now_s = now_s

    @classmethod
    def of(cls, source: Path | Credentials, choice: Choice = "auto", *, server_name: str | None = None) -> "Dialer":
        """With the real transports; PkiError for files that can't be used."""
        quic: Transport = QuicTransport(source, server_name=server_name)
        tcp: Transport = TcpTransport(source, server_name=server_name)
        return cls({"quic": quic, "tcp": tcp}, choice)

    async def dial(self, host: str, port: int, accept: Accept) -> Connection:
        """As `Transport.dial`. ConnectionError names every way that was tried."""
        faults: list[str] = []
        for name in self._fallback.order(self._now_s()):
            try:
                connection = await self._transports[name].dial(host, port, accept)
            except ConnectionError as error:
                faults.append(f"{name}: {error}")
                continue
            if faults:
                self._fallback.blocked(self._now_s())
                log.warning(
                    "UDP to %s port %d seems to be blocked (%s): connected by TCP, QUIC is tried again in %g minutes",
                    host, port, "; ".join(faults), TCP_FOR_S / 60.0,
                )  # fmt: skip
            return connection
        self._fallback.unreachable()
        raise ConnectionError("; ".join(faults))
