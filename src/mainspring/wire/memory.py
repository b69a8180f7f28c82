"""A transport without sockets: for tests under virtual time, and for a gateway or node in its router's own process.

    left, right = connect(call_later, node_identity, router_identity, accept_dialer, accept_listener)

`call_later(delay_s, function)` is the clock: a loop's or a simulation's. Each stream keeps its order; streams overtake
each other as `Network.delay_s` says. Faults: `cut` (nothing passes, in silence), `heal`, `drop` (both sides lose the
link), `pieces` (writes arrive in pieces of so many bytes).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from mainspring.wire.errors import Close, WireError
from mainspring.wire.records import one_line
from mainspring.wire.transport import HIGH_BYTES, LOW_BYTES, STUCK_BYTES, Accept, Identity, Lost, Receiver

CallLater = Callable[[float, Callable[[], None]], object]


@dataclass
class Network:
    """What lies between the two ends; may be changed at any time. `delay_s(stream)` is asked once a piece."""

    call_later: CallLater
    delay_s: Callable[[int], float] = lambda _stream: 0.0
    pieces: int = 0
    up: bool = True
    ends: "list[MemoryConnection]" = field(default_factory=list)

    def cut(self) -> None:
        self.up = False

    def heal(self) -> None:
        """What was held up goes on its way now."""
        self.up = True
        for end in self.ends:
            end.resume()

    def drop(self) -> None:
        """The link is gone without a word, noticed at once by both."""
        for end in self.ends:
            end.lose(Lost(Close.LOST, "dropped"))


class MemoryConnection:
    """Implements `Connection`."""

    transport = "memory"

    def __init__(self, network: Network, peer: Identity, *, dialer: bool) -> None:
        self.peer = peer
        self.dialer = dialer
        self.address = f"memory:{peer.name}"
        self.backlog_bytes = 0
        self.other: MemoryConnection
        self.receiver: Receiver
        self._network = network
        self._queues: dict[int, deque[tuple[bytes, bool]]] = {}
        self._stalled: list[Callable[[], None]] = []
        self._high = False
        self._open = True
        self._closing = False
        network.ends.append(self)

    def write(self, stream: int, data: bytes, end: bool = False) -> None:
        if not self._open or self._closing:
            return
        if self.backlog_bytes + len(data) > STUCK_BYTES:
            self.close(Close.LIMIT, "the peer does not read")
            return
        self.backlog_bytes += len(data)
        self._high = self._high or self.backlog_bytes > HIGH_BYTES
        step = self._network.pieces or max(1, len(data))
        cuts = range(0, max(1, len(data)), step)
        for at in cuts:
            piece = data[at : at + step]
            self._queues.setdefault(stream, deque()).append((piece, end and at + step >= len(data)))
            self._later(self._network.delay_s(stream), lambda: self._deliver(stream))

    def close(self, close: Close, message: str = "") -> None:
        """Its frame travels behind what was written before; our own end comes with the next turn."""
        if not self._open or self._closing:
            return
        self._closing = True
        self._later(self._network.delay_s(0), lambda: self._finish(Lost(close, one_line(message), remote=True)))
        self._network.call_later(0.0, lambda: self.lose(Lost(close, message)))

    def lose(self, lost: Lost) -> None:
        if self._open:
            self._open = False
            self.receiver.connection_lost(lost)

    def resume(self) -> None:
        stalled, self._stalled = self._stalled, []
        for deliver in stalled:
            self._network.call_later(0.0, deliver)

    def _later(self, delay_s: float, deliver: Callable[[], None]) -> None:
        def arrive() -> None:
            if self._network.up:
                deliver()
            else:
                self._stalled.append(deliver)

        self._network.call_later(delay_s, arrive)

    def _deliver(self, stream: int) -> None:
        """Whichever piece's time this was: the stream's first one is what arrives."""
        if not self._queues.get(stream):
            return
        data, end = self._queues[stream].popleft()
        if end:
            del self._queues[stream]  # nothing follows: a link that lasts has no end of streams
        self.backlog_bytes -= len(data)
        if self.other._open:
            self.other.receiver.data_received(stream, data, end)
        if self._high and self.backlog_bytes < LOW_BYTES:
            self._high = False
            if self._open:
                self.receiver.writable()

    def _finish(self, lost: Lost) -> None:
        for stream in [*self._queues]:
            while self._queues.get(stream) and self.other._open:
                self._deliver(stream)
        self.other.lose(lost)


def connect(
    network: Network, dialer: Identity, listener: Identity, accept_dialer: Accept, accept_listener: Accept
) -> tuple[MemoryConnection, MemoryConnection]:
    """(the dialer's end, the listener's end). `dialer` and `listener` say who each side is; a listener that won't have
    the dialer loses it on both ends."""
    left = MemoryConnection(network, listener, dialer=True)
    right = MemoryConnection(network, dialer, dialer=False)
    left.other, right.other = right, left
    left.receiver = accept_dialer(left)
    try:
        right.receiver = accept_listener(right)
    except WireError as error:
        right.receiver = _Nobody()
        right.close(error.close, error.message)
    return left, right


class _Nobody:
    """Who was not let in hears nothing."""

    def data_received(self, stream: int, data: bytes, end: bool) -> None: ...

    def stream_reset(self, stream: int) -> None: ...

    def writable(self) -> None: ...

    def connection_lost(self, lost: Lost) -> None: ...
