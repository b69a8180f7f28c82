"""One link, without sockets or a clock: frames and messages in order, liveness, fencing, limits.

    link = Link.dial(hello, now_s) | Link.answer(peer, rules, now_s)
    events = link.receive(stream, data, end, now_s)   # bytes that came
    stream = link.open(message, now_s); link.send(stream, message, now_s)
    outputs, events = link.poll(now_s)                # bytes to write, and what time alone has done
    link.next_deadline()                              # poll then, if nothing happens before

Covered here: hello before anything else, then the welcome; which message may come from whom on which stream and that an
exchange ends once (`exchanges`); caps of frames before and after the welcome; the count of streams and of buffered
bytes; pings, round trips, the idle timeout; the fence of passes; the order of passes; and the age of what was read
after this process had been stopped. Not covered: who is accepted (the shell answers `Knock` with `welcome` or `close`),
the meaning of messages, dialling again.

Every fault of the peer ends the link with a code and a `Closed` event, never with an exception; misuse by the shell is
a ValueError. After `Closed` everything is ignored. A step of the clock back is read as no step.
"""

from enum import Enum

import msgspec
from msgspec import Struct

from mainspring.wire import messages as m
from mainspring.wire.errors import (
    Close,
    FenceError,
    IdentityError,
    LimitError,
    SequenceError,
    VersionError,
    WireError,
)
from mainspring.wire.exchanges import CONTROL, ON_CONTROL, openings
from mainspring.wire.frames import FrameDecoder
from mainspring.wire.pulse import Pulse
from mainspring.wire.streams import Streams, StreamState
from mainspring.wire.transport import Identity

END_S = 0.1
"""For the end of our direction, after the peer's last message, to go out with something else: nobody waits for it, and
by itself it would cost a record, a system call and a wake-up of the peer for every pass."""
FOREVER = float("inf")


class Rules(Struct, frozen=True):
    """What one side lets the other do. `buffered_bytes` bounds frames that are not whole, over all streams."""

    streams: int = 1024
    frame_bytes: int = 16 << 20
    buffered_bytes: int = 48 << 20
    early_passes: int = 64
    timing: m.Timing = m.Timing()


# ------------------------------------------------------------------ what the shell hears


class Knock(Struct, frozen=True):
    """Listener only: a sound hello whose name and role are the certificate's. Answer with `welcome` or `close`."""

    hello: m.Hello
    version: int


class Joined(Struct, frozen=True):
    """Dialer only."""

    welcome: m.Welcome


class Received(Struct, frozen=True):
    """A message in its turn. `age_s`: how long ago it may have arrived, beyond half a round trip: it waited for an
    earlier pass, or this process had been stopped. `last`: the exchange is over."""

    stream: int
    message: m.Message
    age_s: float = 0.0
    last: bool = False


class Closed(Struct, frozen=True):
    """The last event. `orderly`: the peer said goodbye first. `open` are the streams that were cut short."""

    close: Close
    message: str
    remote: bool = False
    orderly: bool = False
    open: tuple[int, ...] = ()


LinkEvent = Knock | Joined | Received | Closed

# ------------------------------------------------------------------ what the transport is to do


class Write(Struct, frozen=True):
    stream: int
    data: bytes
    end: bool = False


class CloseConnection(Struct, frozen=True):
    close: Close
    message: str = ""


Output = Write | CloseConnection


class Phase(Enum):
    HELLO = 1
    """Dialer: hello sent. Listener: hello awaited."""
    KNOCK = 2
    """Listener: the shell has to decide."""
    OPEN = 3
    CLOSED = 4


class Link:
    """Made by `dial` or `answer`. `version`, `epoch` and `peer_role` are set once it is open."""

    def __init__(self, role: m.Role, peer: Identity | None, rules: Rules, now_s: float, *, dialer: bool) -> None:
        self.role: m.Role = role
        self.dialer = dialer
        self.peer = peer
        self.peer_role: m.Role = "router" if dialer else "node"
        self.rules = rules
        self.phase = Phase.HELLO
        self.version = 0
        self.epoch = 0
        self.pulse = Pulse(rules.timing, now_s)
        self._now_s = now_s
        self._hello_by_s = now_s + rules.timing.hello_s
        self._out: list[Output] = []
        self._ends: list[int] = []
        self._ends_by_s = FOREVER
        self._events: list[LinkEvent] = []
        first = m.Welcome if dialer else m.Hello
        self._control = FrameDecoder({m.KIND_OF[first]: first.cap})
        self._streams = Streams(dialer=dialer, limit=rules.streams)
        self._goodbye = False
        self._control_ended = False
        self._order_out = 0
        self._order_in = 1
        self._early: dict[int, list[tuple[int, m.Message, float]]] = {}
        self._buffered = 0
        self._answered = False
        self._caps_of: dict[frozenset[type], dict[int, int]] = {}

    @classmethod
    def dial(cls, hello: m.Hello, now_s: float, rules: Rules | None = None) -> "Link":
        """A node's or a client's end: the hello is in the first `poll`."""
        if hello.role == "router":
            raise ValueError("a router does not dial")
        link = cls(hello.role, None, rules or Rules(), now_s, dialer=True)
        link._write(CONTROL, hello)
        return link

    @classmethod
    def answer(cls, peer: Identity, now_s: float, rules: Rules | None = None) -> "Link":
        """The router's end; `peer` is what the certificate says."""
        return cls("router", peer, rules or Rules(), now_s, dialer=False)

    @property
    def round_trip_s(self) -> float:
        """The smallest of late, infinite before the first pong."""
        return self.pulse.round_trip_s

    @property
    def buffered_bytes(self) -> int:
        """Of frames that are not whole yet."""
        return self._buffered

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    # -------------------------------------------------------------- in

    def receive(self, stream: int, data: bytes, end: bool, now_s: float) -> list[LinkEvent]:
        """Bytes of one stream; `end`: the peer's direction is over. What they complete, in order."""
        if self.phase is Phase.CLOSED:
            return []
        self._tick(now_s)
        self.pulse.heard(self._now_s)
        try:
            if stream == CONTROL:
                self._control_data(data, end)
            else:
                self._stream_data(stream, data, end)
        except WireError as error:
            self._close(error.close, error.message)
        return self._take_events()

    def reset(self, stream: int, now_s: float) -> list[LinkEvent]:
        """The peer gave up one stream: nobody does in a sound exchange."""
        self._tick(now_s)
        if self.phase is not Phase.CLOSED:
            self._close(Close.PROTOCOL, f"stream {stream} was reset")
        return self._take_events()

    def lost(self, close: Close, message: str, remote: bool, now_s: float) -> list[LinkEvent]:
        """The transport ended."""
        self._tick(now_s)
        if self.phase is not Phase.CLOSED:
            self._end(Closed(close, message, remote, self._goodbye, self._streams.unfinished()))
        return self._take_events()

    # -------------------------------------------------------------- out

    def welcome(self, epoch: int, router: int, now_s: float) -> None:
        """Listener, after `Knock`: the peer has joined."""
        if self.phase is not Phase.KNOCK:
            raise ValueError("nobody has knocked")
        self._tick(now_s)
        self.epoch = epoch
        rules = self.rules
        self._open_up()
        self._write(CONTROL, m.Welcome(version=self.version, epoch=epoch, router=router, timing=rules.timing,
                                       streams=rules.streams, frame_bytes=rules.frame_bytes))  # fmt: skip

    def open(self, message: m.Message, now_s: float) -> int:
        """Begin an exchange on a new stream; its id. After `Joined`, or once a welcomed peer has said something: until
        then a stream could overtake the welcome. LimitError when as many are open as the peer allows: the shell
        waits for one to end."""
        self._tick(now_s)
        if self.phase is not Phase.OPEN or not self._answered:
            raise ValueError("the link is not open")
        if type(message) not in openings(self.role, self.peer_role):
            raise ValueError(f"a {self.role} opens no {type(message).__name__} to a {self.peer_role}")
        stream = self._streams.open(type(message))  # may refuse, and then no place in the order may be used up
        if isinstance(message, m.Work | m.OpenLease):
            self._order_out += 1
            message = msgspec.structs.replace(message, order=self._order_out)
        state = self._streams[stream]
        state.decoder.caps = self._caps(state.may_come())
        state.fence = getattr(message, "fence", None)
        self._write(stream, message, end=state.our_end)
        return stream

    def send(self, stream: int, message: m.Message, now_s: float) -> None:
        """On the control stream, or the next message of an exchange. Nothing is sent where the other side ended the
        exchange meanwhile (a `Cancel` that comes too late)."""
        self._tick(now_s)
        if self.phase is Phase.CLOSED:
            return
        if stream == CONTROL:
            if self.phase is not Phase.OPEN or type(message) not in ON_CONTROL[self.role]:
                raise ValueError(f"a {self.role} does not say {type(message).__name__} now")
            self._write(CONTROL, message)
            return
        state = self._streams.get(stream)
        if state is None:
            return
        last = state.may_send(type(message))
        self._write(stream, message, end=last)
        self._streams.sent(stream, last)

    def close(self, close: Close, message: str, now_s: float) -> list[LinkEvent]:
        """End the link, after what was sent before; an orderly end says goodbye first."""
        self._tick(now_s)
        if self.phase is Phase.OPEN and close in (Close.GOODBYE, Close.DRAINED):
            self._write(CONTROL, m.Goodbye(reason=message))
        if self.phase is not Phase.CLOSED:
            self._close(close, message)
        return self._take_events()

    def poll(self, now_s: float) -> tuple[list[Output], list[LinkEvent]]:
        """Everything to hand to the transport, in order, and what time alone has caused. Call after every other call
        and when `next_deadline` is due."""
        self._tick(now_s)
        if self.phase is Phase.OPEN:
            if self.pulse.dead(self._now_s):
                self._close(Close.IDLE, f"nothing heard for {self.pulse.idle_s:g} s")
            elif (nonce := self.pulse.ping_due(self._now_s)) is not None:
                self._write(CONTROL, m.Ping(nonce=nonce))
        elif self.phase is not Phase.CLOSED and self._now_s >= self._hello_by_s:
            self._close(Close.IDLE, "no hello or welcome in time")
        if self._ends and (self._out or self._now_s >= self._ends_by_s):
            self._out = [*(Write(stream, b"", end=True) for stream in self._ends), *self._out]
            self._ends, self._ends_by_s = [], FOREVER
        out, self._out = self._out, []
        return out, self._take_events()

    def next_deadline(self) -> float | None:
        if self.phase is Phase.CLOSED:
            return None
        return min(self.pulse.deadline(), self._ends_by_s) if self.phase is Phase.OPEN else self._hello_by_s

    # -------------------------------------------------------------- within

    def _tick(self, now_s: float) -> None:
        """Also notices that nobody looked for long: then what is read now may have lain there as long."""
        now_s = max(now_s, self._now_s)
        if self.phase is Phase.OPEN:
            self.pulse.look(now_s)
        self._now_s = now_s

    def _control_data(self, data: bytes, end: bool) -> None:
        if self._control_ended:
            raise SequenceError("bytes after the end of the control stream")
        before = self._control.buffered
        self._control.push(data)
        while (frame := self._control.next()) is not None:
            self._control_message(m.decode(*frame))
        self._count_buffered(self._control.buffered - before)
        if end:
            self._control.finish()
            self._control_ended = True
            if not self._goodbye:
                raise SequenceError("the control stream ended without a goodbye")

    def _control_message(self, message: m.Message) -> None:
        if self.phase is Phase.OPEN:
            self._answered = True
            if isinstance(message, m.Ping):
                self._write(CONTROL, m.Pong(nonce=message.nonce))
            elif isinstance(message, m.Pong):
                self.pulse.ponged(message.nonce, message.held_s, self._now_s)
            else:
                self._goodbye = self._goodbye or isinstance(message, m.Goodbye)
                self._events.append(Received(CONTROL, message, self.pulse.age_s))
        elif isinstance(message, m.Hello) and self.phase is Phase.HELLO:
            self._knock(message)
        elif isinstance(message, m.Welcome) and self.phase is Phase.HELLO:
            self._joined(message)
        else:
            raise SequenceError("not before the welcome")

    def _knock(self, hello: m.Hello) -> None:
        peer = self.peer
        if peer is None or (peer.role, peer.name) != (hello.role, hello.name) or hello.role == "router":
            raise IdentityError("the certificate is for another name or role")
        self.version = min(m.VERSION, hello.newest)
        if self.version < max(m.OLDEST_VERSION, hello.oldest):
            raise VersionError(f"versions {m.OLDEST_VERSION} to {m.VERSION} are spoken here")
        self.peer_role = hello.role
        self.phase = Phase.KNOCK
        self._control.caps = {}
        self._events.append(Knock(hello, self.version))

    def _joined(self, welcome: m.Welcome) -> None:
        if not m.OLDEST_VERSION <= welcome.version <= m.VERSION:
            raise VersionError(f"versions {m.OLDEST_VERSION} to {m.VERSION} are spoken here")
        self.version, self.epoch = welcome.version, welcome.epoch
        self._answered = True
        self._streams.limit_out = min(welcome.streams, self.rules.streams)
        self.pulse = Pulse(welcome.timing, self._now_s, watchful=self.role == "node")
        self._open_up()
        self._events.append(Joined(welcome))

    def _open_up(self) -> None:
        self.phase = Phase.OPEN
        self.pulse.heard(self._now_s)
        self._control.caps = self._caps(ON_CONTROL[self.peer_role])

    def _stream_data(self, stream: int, data: bytes, end: bool) -> None:
        if self.phase is not Phase.OPEN:
            raise SequenceError("streams open after the welcome")
        state = self._streams.arrive(stream, self._caps(openings(self.peer_role, self.role)))
        before = state.decoder.buffered
        state.decoder.push(data)
        while (frame := state.decoder.next()) is not None:
            message = m.decode(*frame)
            self._check_fence(state.fence, message)
            last = state.take(type(message))
            state.decoder.caps = self._caps(state.may_come())
            self._exchange(stream, state, message, last)
        self._count_buffered(state.decoder.buffered - before)
        if end:
            state.decoder.finish()
            state.peer_ended()
        if state.over and not state.our_end:
            self._ends.append(stream)
            crowded = len(self._streams) > self.rules.streams // 2  # on some transports a new stream overtakes an end
            self._ends_by_s = min(self._ends_by_s, self._now_s + (0.0 if crowded else END_S))
            state.our_end = True
        self._streams.sweep(stream)

    def _exchange(self, stream: int, state: StreamState, message: m.Message, last: bool) -> None:
        if isinstance(message, m.Work | m.OpenLease):
            state.fence = getattr(message, "fence", None)
            self._in_order(stream, message)
        elif not (isinstance(message, m.Cancel) and state.over):  # it crossed our last message
            self._follow(stream, message, last)

    def _in_order(self, stream: int, work: m.Work | m.OpenLease) -> None:
        """Passes and leases of one link are heard in the order they were sent: they build on each other."""
        if work.order < self._order_in or work.order in self._early:
            raise SequenceError("two passes or leases of one order")
        if len(self._early) >= self.rules.early_passes:
            raise LimitError("too many passes and leases wait for an earlier one")
        self._early[work.order] = [(stream, work, self._now_s - self.pulse.age_s)]
        while (entries := self._early.pop(self._order_in, None)) is not None:
            self._order_in += 1
            self._events += [Received(at, message, self._now_s - since_s) for at, message, since_s in entries]

    def _follow(self, stream: int, message: m.Message, last: bool) -> None:
        """What follows a pass or lease that waits for its turn waits with it."""
        for entries in self._early.values():
            if entries[0][0] == stream:
                entries.append((stream, message, self._now_s - self.pulse.age_s))
                return
        self._events.append(Received(stream, message, self.pulse.age_s, last))

    def _check_fence(self, fence: object, message: m.Message) -> None:
        mine = getattr(message, "fence", None)
        if isinstance(message, m.Work | m.OpenLease):
            epoch = message.fence.epoch if isinstance(message, m.Work) else message.epoch
            if epoch != self.epoch:
                raise FenceError("work for another life of this node")
        elif mine is not None and mine != fence:
            raise FenceError("a report about work this node does not hold")

    def _count_buffered(self, more: int) -> None:
        self._buffered += more
        if self._buffered > self.rules.buffered_bytes:
            raise LimitError("too many bytes of unfinished frames")

    def _caps(self, records: frozenset[type]) -> dict[int, int]:
        caps = self._caps_of.get(records)
        if caps is None:
            caps = {m.KIND_OF[each]: min(m.CAPS[m.KIND_OF[each]], self.rules.frame_bytes) for each in records}
            self._caps_of[records] = caps
        return caps

    def _write(self, stream: int, message: m.Message, end: bool = False) -> None:
        self._out.append(Write(stream, m.encode(message), end))

    def _close(self, close: Close, message: str) -> None:
        self._out.append(CloseConnection(close, message[:200]))
        self._end(Closed(close, message, False, self._goodbye, self._streams.unfinished()))

    def _end(self, closed: Closed) -> None:
        if self.phase is Phase.KNOCK:  # nobody is to open to one that is gone already
            self._events = [event for event in self._events if not isinstance(event, Knock)]
        self.phase = Phase.CLOSED
        self._events.append(closed)
        self._early.clear()
        self._ends.clear()
        self._streams.clear()
        self._buffered = 0

    def _take_events(self) -> list[LinkEvent]:
        events, self._events = self._events, []
        return events
