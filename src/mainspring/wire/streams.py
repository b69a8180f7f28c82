"""The streams of one link and where the exchange on each stands.

Ids of one side come in order, but may overtake each other on the way: an id skipped is remembered until it comes, an id
seen and over is gone for good. What may be remembered is bounded by the number of streams a side may have open.
"""

from collections.abc import Mapping

from mainspring.wire.errors import LimitError, SequenceError
from mainspring.wire.exchanges import EXCHANGES, Exchange
from mainspring.wire.frames import FrameDecoder
from mainspring.wire.work import Fence

NOTHING: frozenset[type] = frozenset()


class StreamState:
    """`over`: the last message of the exchange has come or gone. Each direction ends by itself after that."""

    __slots__ = ("decoder", "exchange", "fence", "opened_here", "our_end", "over", "peer_end")

    def __init__(self, caps: Mapping[int, int], *, opened_here: bool, exchange: Exchange | None = None) -> None:
        self.decoder = FrameDecoder(caps)
        self.opened_here = opened_here
        self.exchange = exchange
        self.fence: Fence | None = None
        self.over = False
        self.our_end = False
        self.peer_end = False

    def may_come(self) -> frozenset[type]:
        """After the first message. A peer's `Cancel` may cross our last message: it is read and ignored."""
        if self.exchange is None:
            return NOTHING
        if not self.opened_here:
            return self.exchange.asks
        return NOTHING if self.over else self.exchange.answers

    def take(self, kind: type) -> bool:
        """A message came; True where it ends the exchange. The decoder's caps have judged the kind already."""
        if self.peer_end:
            raise SequenceError("a message after the end of its stream")
        if self.exchange is None:
            self.exchange = EXCHANGES[kind]
            return False
        if kind not in self.may_come():
            raise SequenceError(f"no {kind.__name__} may come on this stream now")
        last = self.opened_here and kind in self.exchange.ends
        self.over = self.over or last
        return last

    def may_send(self, kind: type) -> bool:
        """True where it is our last message. ValueError for what never may be sent here."""
        if self.exchange is None:
            raise ValueError("the exchange has not begun")
        if self.opened_here:
            if kind not in self.exchange.asks:
                raise ValueError(f"no {kind.__name__} follows here")
            return False
        if self.over or kind not in self.exchange.answers:
            raise ValueError(f"no {kind.__name__} follows here")
        return kind in self.exchange.ends

    def peer_ended(self) -> None:
        """SequenceError where the peer still owed the last message."""
        if self.peer_end:
            raise SequenceError("a stream ended twice")
        if self.exchange is None or (self.opened_here and not self.over):
            raise SequenceError("a stream ended before its exchange did")
        self.peer_end = True


class Streams:
    def __init__(self, *, dialer: bool, limit: int) -> None:
        self.limit_in = self.limit_out = limit
        self._states: dict[int, StreamState] = {}
        self._next_out = 4 if dialer else 1
        self._next_in = 1 if dialer else 4
        self._parity = self._next_in % 4
        self._skipped: set[int] = set()
        self._opened_out = self._opened_in = 0

    def __len__(self) -> int:
        return len(self._states)

    def __getitem__(self, stream: int) -> StreamState:
        return self._states[stream]

    def get(self, stream: int) -> StreamState | None:
        return self._states.get(stream)

    def open(self, kind: type) -> int:
        if self._opened_out >= self.limit_out:
            raise LimitError("as many streams are open as the peer allows")
        stream, self._next_out = self._next_out, self._next_out + 4
        exchange = EXCHANGES[kind]
        state = StreamState({}, opened_here=True, exchange=exchange)
        state.our_end = not exchange.asks
        self._states[stream] = state
        self._opened_out += 1
        return stream

    def arrive(self, stream: int, first: Mapping[int, int]) -> StreamState:
        """The stream's state; a new one where the peer opens it now, with the caps of first messages."""
        state = self._states.get(stream)
        if state is not None:
            return state
        if stream % 4 != self._parity or stream < 0:
            raise SequenceError("bytes on a stream that this side never opened")
        if stream < self._next_in:
            if stream not in self._skipped:
                raise SequenceError("bytes on a stream that is over")
            self._skipped.discard(stream)
        else:
            if (stream - self._next_in) // 4 + len(self._skipped) >= self.limit_in:
                raise LimitError("too many streams")
            self._skipped.update(range(self._next_in, stream, 4))
            self._next_in = stream + 4
        if self._opened_in >= self.limit_in:
            raise LimitError("too many streams")
        self._opened_in += 1
        state = self._states[stream] = StreamState(first, opened_here=False)
        return state

    def sent(self, stream: int, last: bool) -> None:
        if last:
            state = self._states[stream]
            state.over = state.our_end = True
            self.sweep(stream)

    def sweep(self, stream: int) -> None:
        """Forget it once both directions are over."""
        state = self._states.get(stream)
        if state is not None and state.our_end and state.peer_end:
            del self._states[stream]
            if state.opened_here:
                self._opened_out -= 1
            else:
                self._opened_in -= 1

    def unfinished(self) -> tuple[int, ...]:
        return tuple(stream for stream, state in self._states.items() if not state.over)

    def clear(self) -> None:
        self._states.clear()
        self._skipped.clear()
