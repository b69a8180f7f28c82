"""One connection of `tcp`: a TLS channel and a mux between an asyncio socket and a `Receiver`.

Writes of one turn go out together. The kernel holds at most `UNSENT_BYTES` of what was not sent yet, so that pings
overtake passes. After the end we read on, into nothing, for as long as the linger lasts: a socket closed with unread
bytes is reset, and a reset takes our last words from the peer's buffer.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import cast

from mainspring.wire.errors import Close, WireError
from mainspring.wire.mux import Data, Event, Mux, Reset, merged
from mainspring.wire.tls_channel import RefusedError, TlsChannel
from mainspring.wire.transport import HIGH_BYTES, LOW_BYTES, STUCK_BYTES, Accept, Identity, Lost, Receiver

HANDSHAKE_S = 5.0
LINGER_S = 1.0
UNSENT_BYTES = 128 << 10
TAKE_BYTES = 128 << 10


class TcpConnection(asyncio.Protocol):
    """Implements `Connection`. `joined(self)` is called once, when the peer was verified, and gives the receiver;
    `left(self)` once, when the socket is gone. Until then `peer` is not set."""

    def __init__(
        self, channel: TlsChannel, wall_s: Callable[[], float], joined: Accept, left: Callable[["TcpConnection"], None],
        *, dialer: bool,
    ) -> None:  # fmt: skip
        self.dialer = dialer
        self.address = ""
        self.peer: Identity
        self._channel = channel
        self._wall_s = wall_s
        self._joined, self._left = joined, left
        self._mux = Mux(dialer=dialer)
        self._receiver: Receiver | None = None
        self._socket: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self._lost: Lost | None = None
        self._told = self._said_eof = False
        self._high = self._paused = self._flushing = False
        self._timer: asyncio.TimerHandle | None = None

    # -------------------------------------------------------------- Connection

    @property
    def transport(self) -> str:
        return "tcp"

    @property
    def backlog_bytes(self) -> int:
        return self._mux.backlog_bytes

    @property
    def joined(self) -> bool:
        """The peer was verified."""
        return self._receiver is not None

    @property
    def lost(self) -> Lost | None:
        return self._lost

    def write(self, stream: int, data: bytes, end: bool = False) -> None:
        if self._lost is not None:
            return
        if self._mux.backlog_bytes + len(data) > STUCK_BYTES:
            self._mux.close(Close.LIMIT, "the peer does not read")
            self._end(Lost(Close.LIMIT, "the peer does not read"))
            self._soon()
            return
        self._mux.write(stream, data, end)
        self._high = self._high or self._mux.backlog_bytes > HIGH_BYTES
        self._soon()

    def close(self, close: Close, message: str = "") -> None:
        """The receiver hears of it when the peer has closed too, so has our last words, or the linger is over: a
        process may end then."""
        if self._lost is not None:
            return
        self._mux.close(close, message)
        self._lost = Lost(close, message)
        self._linger()
        self._soon()

    def abort(self) -> None:
        """Without a word: the caller dials no longer."""
        if hasattr(self, "_socket"):
            self._socket.abort()

    # -------------------------------------------------------------- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transports do not derive from asyncio's.
        self._socket = cast(asyncio.Transport, transport)
        peername = transport.get_extra_info("peername") or ("?", 0)
        self.address = f"{peername[0]}:{peername[1]}"
        self._socket.set_write_buffer_limits(high=UNSENT_BYTES)
        with contextlib.suppress(OSError, AttributeError):  # not on every system
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        self._timer = self._loop.call_later(HANDSHAKE_S, self._too_slow)
        if self.dialer:
            self._channel.start(self._wall_s())
            self._send_raw()

    def data_received(self, data: bytes) -> None:
        if self._lost is not None:
            return
        try:
            pieces = self._channel.receive(data, self._wall_s())
            if self._receiver is None:
                self._send_raw()
                if self._channel.peer is None:
                    return
                self._join(self._channel.peer)
            for event in merged(event for piece in pieces for event in self._mux.receive(piece)):
                if self.lost is not None:
                    return
                self._hear(event)
        except WireError as error:
            self._fail(error)
            return
        if self._channel.ended:
            self._end(Lost(Close.LOST, "the peer closed without a word"))
            self._socket.close()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._lost is None:
            self._lost = Lost(Close.LOST, "the connection broke" if exc is None else f"the connection broke: {exc}")
        self._tell()
        self._left(self)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush()

    # -------------------------------------------------------------- within

    def _join(self, peer: Identity) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.peer = peer
        self._receiver = self._joined(self)

    def _hear(self, event: Event) -> None:
        assert self._receiver is not None  # noqa: S101 - joined before the mux hears anything
        if isinstance(event, Data):
            self._receiver.data_received(event.stream, event.data, event.end)
        elif isinstance(event, Reset):
            self._receiver.stream_reset(event.stream)
        else:
            self._end(event)
            self._socket.close()

    def _fail(self, error: WireError) -> None:
        """The peer's fault: the alert, or the close, tells it why."""
        if self._channel.shaken and not isinstance(error, RefusedError):
            self._mux.close(error.close, error.message)
        self._end(Lost(error.close, error.message, remote=isinstance(error, RefusedError)))
        self._send_raw()
        self._soon()

    def _end(self, lost: Lost) -> None:
        """Nobody here asked for it: the receiver hears it with the next turn, to give its work to others; what was
        written goes out until the linger is over."""
        if self._lost is None:
            self._lost = lost
            self._linger()
            self._loop.call_soon(self._tell)

    def _linger(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(LINGER_S, self._socket.abort)

    def _tell(self) -> None:
        if self._told or self._lost is None:
            return
        self._told = True
        if self._receiver is not None:
            self._receiver.connection_lost(self._lost)

    def _too_slow(self) -> None:
        self._end(Lost(Close.LOST, f"no handshake within {HANDSHAKE_S:g} s"))
        self._socket.abort()

    def _soon(self) -> None:
        """Writes of one turn go out together."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._socket.is_closing():
            return
        while self._mux.waiting and not self._paused and self._channel.shaken:
            self._channel.write(self._mux.take(TAKE_BYTES))
            self._send_raw()
        if self._lost is not None and (not self._mux.waiting or not self._channel.shaken):
            self._say_eof()
        elif self._high and self._mux.backlog_bytes < LOW_BYTES and self._receiver is not None and not self._lost:
            self._high = False
            self._receiver.writable()

    def _say_eof(self) -> None:
        """Then we read, and throw away, until the peer closes or the linger is over: a socket closed with unread bytes
        is reset, and a reset takes the peer's last words from its buffer."""
        if not self._said_eof:
            self._said_eof = True
            self._channel.finish()
            self._send_raw()
            with contextlib.suppress(OSError):  # the peer was faster, and there is nobody left to tell
                self._socket.write_eof()

    def _send_raw(self) -> None:
        if data := self._channel.outgoing():
            self._socket.write(data)
