"""Streams over one ordered byte stream (TCP), without sockets: what QUIC gives for nothing.

    u32 stream | u24 length | u8 flags     little-endian, then `length` bytes

Flags: 1 end of the direction, 2 reset, 4 close (payload: u16 code, then a message in UTF-8), one at most of the last
two. A chunk has at most 16,376 bytes, so that with its header it fills one TLS record.

Out: each stream has its queue, streams take turns chunk by chunk, the control stream goes first, so a ping waits behind
one chunk and not behind a pass. In: nothing is kept but a header or a close that is not whole; bytes go on as they
come. There are no credits: a reader consumes at once and is bounded by counting (see `transport`), so a window could
never close, and TCP's own stops a writer whose peer does not read.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from msgspec import Struct

from mainspring.wire.errors import Close, SequenceError, WireError
from mainspring.wire.records import one_line
from mainspring.wire.transport import Lost

CHUNK_BYTES = 16_376
HEADER_BYTES = 8
CLOSE_BYTES = 1024
END, RESET, CLOSE = 1, 2, 4
CONTROL = 0


class Data(Struct, frozen=True):
    stream: int
    data: bytes
    end: bool


class Reset(Struct, frozen=True):
    stream: int


Event = Data | Reset | Lost
"""`Lost` is the peer's close: the last event."""


def merged(events: Iterable[Event]) -> Iterator[Event]:
    """What came of one stream without anything between is one event: a pass of three chunks costs its receiver one turn
    instead of three. A WireError of `events` follows what came before it."""
    source, fault = iter(events), None
    stream, pieces = 0, list[bytes]()
    while True:
        try:
            event = next(source, None)
        except WireError as error:
            event, fault = None, error
        if pieces and not (isinstance(event, Data) and event.stream == stream):
            yield Data(stream, b"".join(pieces), False)
            pieces = []
        if fault is not None:
            raise fault
        if event is None:
            return
        if not isinstance(event, Data):
            yield event
            continue
        stream = event.stream
        pieces.append(event.data)
        if event.end:
            yield Data(stream, b"".join(pieces), True)
            pieces = []


class Mux:
    """Raises WireError for what no sound peer sends; the caller then closes with its code."""

    def __init__(self, *, dialer: bool) -> None:
        self.backlog_bytes = 0
        self._ours = 0 if dialer else 1
        self._opened = -1
        self._queues: dict[int, deque[memoryview]] = {}
        self._ends: set[int] = set()
        self._turns: deque[int] = deque()
        self._closing: bytes | None = None
        self._closed = False
        self._head = bytearray()
        self._stream = self._left = self._flags = 0
        self._within = False
        self._over = False

    # -------------------------------------------------------------- out

    def write(self, stream: int, data: bytes, end: bool = False) -> None:
        """Queue it. Nothing follows the end of a stream or a close: that would be our own fault (ValueError)."""
        if self._closed or self._closing is not None or stream in self._ends:
            raise ValueError(f"nothing can follow on stream {stream}")
        if stream & 3 == self._ours:
            self._opened = max(self._opened, stream)
        queue = self._queues.get(stream)
        if queue is None:
            queue = self._queues[stream] = deque()
            self._turns.append(stream)
        if data:
            queue.append(memoryview(data))
            self.backlog_bytes += len(data)
        if end:
            self._ends.add(stream)

    def close(self, close: Close, message: str = "") -> None:
        """The last chunk, behind everything written."""
        if self._closing is None and not self._closed:
            self._closing = close.to_bytes(2, "little") + message.encode()[:200]

    @property
    def waiting(self) -> bool:
        return bool(self._turns) or self._closing is not None

    def take(self, limit: int) -> bytes:
        """Chunks to send now, at least one if any waits, then as many as fit in `limit`."""
        pieces: list[bytes | memoryview] = []
        size = 0
        while self._turns and size < limit:
            size += self._take_chunk(pieces)
        if not self._turns and self._closing is not None and size < limit:
            pieces += [_header(CONTROL, len(self._closing), CLOSE), self._closing]
            self._closing = None
            self._closed = True
        return b"".join(pieces)

    def _take_chunk(self, pieces: list[bytes | memoryview]) -> int:
        stream = CONTROL if CONTROL in self._queues else self._turns[0]
        if stream == CONTROL:
            self._turns.remove(CONTROL)
        else:
            self._turns.popleft()
        queue = self._queues[stream]
        size = 0
        taken: list[memoryview] = []
        while queue and size < CHUNK_BYTES:
            view = queue[0]
            room = CHUNK_BYTES - size
            if len(view) > room:
                taken.append(view[:room])
                queue[0] = view[room:]
                size += room
            else:
                taken.append(queue.popleft())
                size += len(view)
        over = not queue
        end = over and stream in self._ends
        pieces += [_header(stream, size, END if end else 0), *taken]
        self.backlog_bytes -= size
        if over:
            del self._queues[stream]
            self._ends.discard(stream)
        else:
            self._turns.append(stream)
        return HEADER_BYTES + size

    # -------------------------------------------------------------- in

    def receive(self, data: bytes) -> list[Event]:
        """What has come, in order. After a close or an error nothing more."""
        events: list[Event] = []
        view = memoryview(data)
        while not self._over and (view or (self._within and not self._left)):
            if not self._within:
                need = HEADER_BYTES - len(self._head)
                self._head += view[:need]
                view = view[need:]
                if len(self._head) == HEADER_BYTES:
                    self._begin()
                continue
            piece, view = view[: self._left], view[self._left :]
            self._left -= len(piece)
            self._piece(piece, events)
        return events

    def _begin(self) -> None:
        """A header is whole. What can't be is refused before its payload comes."""
        word = int.from_bytes(self._head, "little")
        self._head.clear()
        stream, size, flags = word & 0xFFFF_FFFF, word >> 32 & 0xFF_FFFF, word >> 56
        cap = CLOSE_BYTES if flags == CLOSE else 0 if flags == RESET else CHUNK_BYTES
        if flags not in (0, END, RESET, CLOSE) or size > cap:
            self._fail(f"a chunk with flags {flags} and {size:,} bytes")
        if flags == CLOSE and size < 2:
            self._fail("a close without a code")
        if flags != CLOSE and (stream & 2 or (stream & 1 == self._ours and stream > self._opened)):
            self._fail("bytes on a stream that nobody opened")
        self._stream, self._left, self._flags, self._within = stream, size, flags, True

    def _piece(self, piece: memoryview, events: list[Event]) -> None:
        over = not self._left
        self._within = not over
        if self._flags == CLOSE:
            self._head += piece
            if over:
                code, message = int.from_bytes(self._head[:2], "little"), self._head[2:].decode(errors="replace")
                self._over = True
                events.append(Lost(_close(code), one_line(message[:200]), remote=True))
        elif self._flags == RESET:
            events.append(Reset(self._stream))
        else:
            events.append(Data(self._stream, bytes(piece), over and self._flags == END))

    def _fail(self, message: str) -> None:
        self._over = True
        raise SequenceError(message)


def _header(stream: int, size: int, flags: int) -> bytes:
    return (stream | size << 32 | flags << 56).to_bytes(HEADER_BYTES, "little")


def _close(code: int) -> Close:
    """Of a later version, or nonsense: a fault of the protocol."""
    try:
        return Close(code)
    except ValueError:
        return Close.PROTOCOL
