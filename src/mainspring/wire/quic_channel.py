"""One QUIC connection between datagrams and a `Receiver`: what `quic` puts on sockets and tests run in virtual time.

Nothing here opens a socket or reads a clock: datagrams come by `receive` and go by `send`, time and timers are the
`Clock`'s, which an asyncio loop is. Bounded by: windows of `WINDOW_BYTES`, the backlog (`STUCK_BYTES`), 5 s for the
handshake, a second of linger, two seconds for the remains of a closed connection.
"""

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from qh3.quic import events
from qh3.quic.connection import QuicConnectionError

from mainspring.faultlog import log_fault
from mainspring.wire.clock import Clock, Handle
from mainspring.wire.errors import Close, WireError
from mainspring.wire.quic_connection import Address, FleetConnection
from mainspring.wire.quic_endings import lost_of
from mainspring.wire.transport import HIGH_BYTES, LOW_BYTES, STUCK_BYTES, Accept, Identity, Lost, Receiver

log = logging.getLogger(__name__)

HANDSHAKE_S = 5.0
LINGER_S = 1.0
REMAINS_S = 2.0
KEY_DATAGRAMS = 1 << 21
"""New keys after so many datagrams of ours: AES-GCM may seal 2^23 packets with one key (RFC 9001, 6.6)."""


class QuicChannel:
    """Implements `Connection`. `joined` gives the receiver once the peer was verified; `left(self)` is the last call.

    `routes(self, cid, add)`: our connection ids come and go.
    """

    transport = "quic"

    def __init__(
        self, connection: FleetConnection, clock: Clock, send: Callable[[list[bytes], Address], None],
        joined: Accept, left: "Callable[[QuicChannel], None]", *, dialer: bool,
        routes: "Callable[[QuicChannel, bytes, bool], None]" = lambda _channel, _cid, _add: None,
        key_datagrams: int = KEY_DATAGRAMS,
    ) -> None:  # fmt: skip
        self.dialer = dialer
        self.address = ""
        self.peer: Identity
        self.paused = False
        self.heard_s = clock.time()
        self.silence: tuple[float, Callable[[], None]] | None = None
        """Dialer: after so many seconds without a datagram while one is awaited, call this."""
        self.connection = connection
        self._clock, self._send = clock, send
        self._joined, self._left, self._routes = joined, left, routes
        self._receiver: Receiver | None = None
        self._lost: Lost | None = None
        self._told = self._gone = self._high = self._flushing = False
        self._by_s = self.heard_s + HANDSHAKE_S
        self._complained_s = self._asked_s = self.heard_s
        self._timer: Handle | None = None
        self._timer_s = float("inf")
        self._held: dict[int, list[tuple[bytes, bool]]] = {}
        self._held_bytes = 0
        self._key_datagrams, self._sent = key_datagrams, 0

    # -------------------------------------------------------------- Connection

    @property
    def joined(self) -> bool:
        """The peer was verified."""
        return self._receiver is not None

    @property
    def lost(self) -> Lost | None:
        return self._lost

    @property
    def backlog_bytes(self) -> int:
        return self.connection.get_send_buffer_size() + self._held_bytes

    def write(self, stream: int, data: bytes, end: bool = False) -> None:
        if self._lost is not None:
            return
        backlog = self.backlog_bytes + len(data)
        if backlog > STUCK_BYTES:
            self._cut(Close.LIMIT, "the peer does not read")
            return
        self._high = self._high or backlog > HIGH_BYTES
        if self.silence is not None and self.connection.idle:
            self._asked_s = self._clock.time()
        ours = (stream & 1 == 0) == self.dialer
        if stream in self._held or (ours and not self.connection.may_open(stream)):
            self._held.setdefault(stream, []).append((data, end))
            self._held_bytes += len(data)
        else:
            self._put(stream, data, end)
        self._soon()

    def close(self, close: Close, message: str = "") -> None:
        """The receiver hears of it when our last words are out: a process may end then."""
        if self._lost is None:
            self._lost = Lost(close, message)
            self._by_s = self._clock.time() + LINGER_S
            self._soon()

    # -------------------------------------------------------------- datagrams and time

    def receive(self, datagrams: list[bytes], address: Address) -> None:
        now_s = self._clock.time()
        self.heard_s = now_s
        try:
            self.connection.receive_many_datagrams(datagrams, address, now_s)
        except Exception as error:  # the library's
            self._library_failed(error)
            return
        self.address = self.connection.remote_address or f"{address[0]}:{address[1]}"
        self._turn()

    def resume(self) -> None:
        """The socket takes datagrams again."""
        self.paused = False
        self._turn()

    def start(self, address: Address) -> None:
        """Dialer: the first flight."""
        self.connection.connect(address, self._clock.time())
        self.address = f"{address[0]}:{address[1]}"
        self._turn()

    def probe_path(self) -> None:
        """Dialer, after its socket was changed: something has to be sent for the router to see the new path."""
        if not self._gone and self._lost is None and self.joined:
            self.connection.send_ping(0)
            self._turn()

    def abort(self) -> None:
        """Without a word."""
        self._end(Lost(Close.LOST, "given up"))
        self._finish()

    # -------------------------------------------------------------- within

    def _turn(self) -> None:
        """Events, then whatever is to be sent, then the timer."""
        if self._gone:
            return
        while (event := self.connection.next_event()) is not None:
            try:
                self._hear(event)
            except Exception as error:  # the shell's fault: it loses this connection, the port goes on
                log_fault(log, error, "the receiver of %s failed", self.address)
                self._cut(Close.INTERNAL, "the receiver failed")
        ending = self.connection.ending
        if ending is not None and self._lost is None:
            self._end(lost_of(ending, self.connection.fault))
        if self.dialer and self._lost is not None and self._lost.remote:
            self._finish()  # who was closed says nothing more; a listener keeps the ids, to know stragglers by
            return
        self._flush()
        if self.dialer and self._lost is not None and not self.joined:
            self._finish()

    def _hear(self, event: Any) -> None:
        receiver = self._receiver
        if isinstance(event, events.StreamDataReceived):
            if receiver is not None and self._lost is None:
                receiver.data_received(event.stream_id, event.data, event.end_stream)
        elif isinstance(event, events.HandshakeCompleted):
            self._join()
        elif isinstance(event, events.StreamReset | events.StopSendingReceived):
            if receiver is not None and self._lost is None:
                receiver.stream_reset(event.stream_id)
        elif isinstance(event, events.ConnectionIdIssued):
            self._routes(self, event.connection_id, True)
        elif isinstance(event, events.ConnectionIdRetired):
            self._routes(self, event.connection_id, False)
        elif isinstance(event, events.ConnectionTerminated):
            self._end(lost_of((event.error_code, event.frame_type, event.reason_phrase), self.connection.fault))
            self._finish()

    def _join(self) -> None:
        identity = self.connection.identity
        if identity is None:  # no handshake completes without one; if one did, nobody would be let in
            self._cut(Close.IDENTITY, "nobody was verified")
            return
        self.peer = identity
        try:
            self._receiver = self._joined(self)
        except WireError as error:
            self._cut(error.close, error.message)
        else:
            self._by_s = float("inf")

    def _cut(self, close: Close, message: str) -> None:
        """As `close`, but nobody asked for it: the receiver hears with the next turn, to give its work to others."""
        if self._lost is None:
            self._end(Lost(close, message))
            self._by_s = self._clock.time() + LINGER_S
            self._soon()

    def _end(self, lost: Lost) -> None:
        """The receiver hears it with the next turn."""
        if self._lost is None:
            self._lost = lost
            self._by_s = self._clock.time() + REMAINS_S
            self._clock.call_soon(self._tell)

    def _tell(self) -> None:
        if not self._told and self._lost is not None:
            self._told = True
            if self._receiver is not None:
                self._receiver.connection_lost(self._lost)

    def _finish(self) -> None:
        if not self._gone:
            self._gone = True
            if self._timer is not None:
                self._timer.cancel()
            self._tell()
            self._left(self)

    def _library_failed(self, error: Exception) -> None:
        """Whatever it was, this connection is over and no other."""
        log_fault(log, error, "the connection with %s ends", self.address, level=logging.WARNING)
        self._end(Lost(Close.INTERNAL, "the QUIC library failed"))
        with contextlib.suppress(Exception):  # the peer need not wait for its idle timeout, if it can be told
            self.connection.close(int(Close.INTERNAL), None, "the QUIC library failed")
            self._transmit(self._clock.time())
        self._finish()

    def _soon(self) -> None:
        """Writes of one turn go out together."""
        if not self._flushing:
            self._flushing = True
            self._clock.call_soon(self._turn)

    def _flush(self) -> None:
        self._flushing = False
        if self._gone:
            return
        now_s = self._clock.time()
        while self._held and self.connection.may_open(stream := next(iter(self._held))):
            for data, end in self._held.pop(stream):
                self._held_bytes -= len(data)
                self._put(stream, data, end)
        self._close_when_sent(now_s)
        if not self.paused:
            try:
                self._transmit(now_s)
            except Exception as error:  # the library's
                self._library_failed(error)
                return
            if self._lost is not None and self.connection.ending is not None:
                self._clock.call_soon(self._tell)
        if self._high and self._lost is None and self.backlog_bytes < LOW_BYTES and self._receiver is not None:
            self._high = False
            self._receiver.writable()
        self._set_timer()

    def _put(self, stream: int, data: bytes, end: bool) -> None:
        try:
            self.connection.send_stream_data(stream, data, end)
        except (ValueError, QuicConnectionError) as error:
            # The peer never opened it, or stopped or reset it: in a sound exchange it does neither.
            self._cut(Close.PROTOCOL, f"stream {stream} can't be written: {error}")

    def _close_when_sent(self, now_s: float) -> None:
        """Our close goes when what was written before has arrived, or when the linger is over."""
        lost = self._lost
        if lost is None or lost.remote or self.connection.ending is not None:
            return
        if now_s >= self._by_s or not self.joined or (not self._held and self.connection.idle):
            self.connection.close(int(lost.close), None, lost.message[:200])
            self._by_s = now_s + REMAINS_S

    def _transmit(self, now_s: float) -> None:
        batch: list[bytes] = []
        target: Address | None = None
        for data, address in self.connection.datagrams_to_send(now_s):
            if address != target and batch and target is not None:
                self._send(batch, target)
                batch = []
            target = address
            batch.append(data)
            self._sent += 1
        if batch and target is not None:
            self._send(batch, target)
        if self._sent >= self._key_datagrams and self.connection.may_update_keys:
            self._update_keys()

    def _update_keys(self) -> None:
        """Again half a term later where the update before is not confirmed yet: the limit is four terms away."""
        self._sent = 0
        try:
            self.connection.request_key_update()
        except (ValueError, QuicConnectionError):
            self._sent = self._key_datagrams // 2

    def _set_timer(self) -> None:
        timer_s = self.connection.get_timer()
        when_s = self._by_s if timer_s is None else min(timer_s, self._by_s)
        if self._timer is not None:
            if when_s == self._timer_s:
                return
            self._timer.cancel()
            self._timer = None
        self._timer_s = when_s
        if when_s != float("inf"):
            self._timer = self._clock.call_at(when_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        now_s = self._clock.time()
        if now_s >= self._by_s and self.connection.ending is not None:
            self._finish()
            return
        if now_s >= self._by_s and not self.joined and self._lost is None:
            self._end(Lost(Close.LOST, f"no handshake within {HANDSHAKE_S:g} s"))
            self._finish()
            return
        try:
            self.connection.handle_timer(now_s)
        except Exception as error:  # the library's
            self._library_failed(error)
            return
        self._notice_silence(now_s)
        self._turn()

    def _notice_silence(self, now_s: float) -> None:
        if self.silence is None or not self.joined or self._lost is not None or self.connection.idle:
            return
        after_s, call = self.silence
        if now_s - max(self.heard_s, self._complained_s, self._asked_s) > after_s:
            self._complained_s = now_s
            call()
