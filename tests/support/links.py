"""Two link machines over a memory network under virtual time, driven as the shells drive them."""

from collections.abc import Callable
from heapq import heappop, heappush

from mainspring.core.cost import Cost
from mainspring.core.nouns import Limits
from mainspring.wire import messages as m
from mainspring.wire.errors import Close
from mainspring.wire.link import CloseConnection, Closed, Joined, Knock, Link, LinkEvent, Received, Rules
from mainspring.wire.memory import Network, connect
from mainspring.wire.transport import Connection, Identity, Lost


class World:
    """A clock that jumps from event to event."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def call_later(self, delay_s: float, function: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._queue, (self.now_s + delay_s, self._count, function))

    def run(self, until_s: float) -> None:
        while self._queue and self._queue[0][0] <= until_s:
            self.now_s, _, function = heappop(self._queue)
            function()
        self.now_s = until_s


class End:
    """A shell without decisions: writes what the link says, keeps what it hears, wakes it when it asks.

    `asleep` is a stopped process: what comes is read when it wakes."""

    def __init__(self, world: World, link: Link) -> None:
        self.world, self.link = world, link
        self.heard: list[LinkEvent] = []
        self.connection: Connection
        self.asleep = False
        self._unread: list[Callable[[], None]] = []
        self._timer = 0

    def accept(self, connection: Connection) -> "End":
        self.connection = connection
        self.world.call_later(0.0, self.turn)
        return self

    def data_received(self, stream: int, data: bytes, end: bool) -> None:
        if self.asleep:
            self._unread.append(lambda: self.data_received(stream, data, end))
            return
        self.heard += self.link.receive(stream, data, end, self.world.now_s)
        self.turn()

    def stream_reset(self, stream: int) -> None:
        self.heard += self.link.reset(stream, self.world.now_s)

    def writable(self) -> None: ...

    def connection_lost(self, lost: Lost) -> None:
        self.heard += self.link.lost(lost.close, lost.message, lost.remote, self.world.now_s)

    def turn(self) -> None:
        if self.asleep:
            return
        outputs, events = self.link.poll(self.world.now_s)
        self.heard += events
        for output in outputs:
            if isinstance(output, CloseConnection):
                self.connection.close(output.close, output.message)
            else:
                self.connection.write(output.stream, output.data, output.end)
        self._timer += 1
        timer, deadline = self._timer, self.link.next_deadline()
        if deadline is not None:
            self.world.call_later(
                max(0.0, deadline - self.world.now_s), lambda: self.turn() if timer == self._timer else None
            )

    def wake(self) -> None:
        self.asleep = False
        unread, self._unread = self._unread, []
        for read in unread:
            read()
        self.turn()

    def open(self, message: m.Message) -> int:
        stream = self.link.open(message, self.world.now_s)
        self.turn()
        return stream

    def send(self, stream: int, message: m.Message) -> None:
        self.link.send(stream, message, self.world.now_s)
        self.turn()

    def close(self, close: Close) -> None:
        self.heard += self.link.close(close, "enough", self.world.now_s)
        self.turn()

    def got(self, kind: type) -> list[Received]:
        return [e for e in self.heard if isinstance(e, Received) and isinstance(e.message, kind)]

    @property
    def closed(self) -> Closed | None:
        return next((e for e in self.heard if isinstance(e, Closed)), None)


class Rig:
    """A node or client at `left`, the router at `right`; `join` lets the newcomer in and makes it say something."""

    def __init__(self, role: m.Role = "node", delay_s: float = 0.01, rules: Rules | None = None) -> None:
        self.world = World()
        self.network = Network(self.world.call_later, lambda _stream: delay_s)
        who, router = Identity("fleet", role, "ant"), Identity("fleet", "router", "hill")
        self.left = End(self.world, Link.dial(m.Hello(role=role, name="ant", instance=7), 0.0))
        self.right = End(self.world, Link.answer(who, 0.0, rules))
        connect(self.network, who, router, self.left.accept, self.right.accept)

    def join(self) -> "Rig":
        self.world.run(self.world.now_s + 0.1)
        assert isinstance(self.right.heard[0], Knock)
        self.right.link.welcome(3, 11, self.world.now_s)
        self.right.turn()
        self.world.run(self.world.now_s + 0.1)
        assert isinstance(self.left.heard[0], Joined)
        return self

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now_s + seconds)


def fence(pass_id: int = 1, attempt: int = 0, epoch: int = 3) -> m.Fence:
    return m.Fence(pass_id=pass_id, attempt=attempt, epoch=epoch)


def work(pass_id: int = 1, **changes: object) -> m.Work:
    part = m.Part(request="r", view_tokens=b"\1\0\0\0" * 5)
    fields = {"fence": fence(pass_id), "parts": (part,), "predicted_s": 0.1, "start_within_s": 1.0, **changes}
    return m.Work(**fields)  # type: ignore[arg-type]


def offer() -> m.Offer:
    return m.Offer(
        model="key", alias="tiny", bundle="b", bundle_bytes=10, bundle_sha256="s", numerics="fp32",
        cost=Cost(0.01, 1e-5, 1e-5), limits=Limits(),
    )  # fmt: skip
