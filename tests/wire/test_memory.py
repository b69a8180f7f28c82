"""The memory transport keeps the promises of `Connection`: order within a stream, one end, faults on demand."""

from hypothesis import given
from hypothesis import strategies as st

from mainspring.wire.errors import BusyError, Close
from mainspring.wire.memory import MemoryConnection, Network, connect
from mainspring.wire.transport import HIGH_BYTES, STUCK_BYTES, Connection, Identity, Lost
from support.links import World

ANT, HILL = Identity("fleet", "node", "ant"), Identity("fleet", "router", "hill")


class Ear:
    def __init__(self) -> None:
        self.data: dict[int, bytes] = {}
        self.ended: list[int] = []
        self.lost: list[Lost] = []
        self.could_write = 0

    def accept(self, _connection: Connection) -> "Ear":
        return self

    def data_received(self, stream: int, data: bytes, end: bool) -> None:
        self.data[stream] = self.data.get(stream, b"") + data
        self.ended += [stream] if end else []

    def stream_reset(self, stream: int) -> None: ...

    def writable(self) -> None:
        self.could_write += 1

    def connection_lost(self, lost: Lost) -> None:
        self.lost.append(lost)


def pair(world: World, delays: list[float] | None = None) -> tuple[Network, MemoryConnection, Ear, Ear]:
    waits = list(delays or [])
    network = Network(world.call_later, lambda _stream: waits.pop() if waits else 0.01)
    left, right = Ear(), Ear()
    near, _ = connect(network, ANT, HILL, left.accept, right.accept)
    return network, near, left, right


@given(st.lists(st.tuples(st.sampled_from([0, 4, 8]), st.binary(max_size=9)), max_size=12), st.data())
def test_streams_overtake_each_other_but_keep_their_own_order(
    writes: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    world = World()
    network, near, _, right = pair(world, data.draw(st.lists(st.floats(0, 1), max_size=40)))
    network.pieces = data.draw(st.integers(0, 3))
    for stream, chunk in writes:
        near.write(stream, chunk)
    for stream in {stream for stream, _ in writes}:
        near.write(stream, b"", end=True)
    world.run(10.0)
    for stream in {stream for stream, _ in writes}:
        assert right.data[stream] == b"".join(chunk for at, chunk in writes if at == stream)
    assert sorted(right.ended) == sorted({stream for stream, _ in writes})
    assert near.backlog_bytes == 0


def test_what_was_written_before_a_close_arrives() -> None:
    world = World()
    _, near, left, right = pair(world)
    near.write(0, b"last words")
    near.close(Close.GOODBYE, "bye")
    near.write(0, b"too late")
    world.run(1.0)
    assert right.data == {0: b"last words"}
    assert right.lost == [Lost(Close.GOODBYE, "bye", remote=True)]
    assert left.lost == [Lost(Close.GOODBYE, "bye")]


def test_a_cut_is_silence_and_healing_delivers() -> None:
    world = World()
    network, near, left, right = pair(world)
    network.cut()
    near.write(0, b"hello")
    world.run(5.0)
    assert not right.data
    assert not left.lost
    network.heal()
    world.run(6.0)
    assert right.data == {0: b"hello"}


def test_a_dropped_link_is_lost_once_on_both_sides() -> None:
    world = World()
    network, near, left, right = pair(world)
    network.drop()
    near.write(0, b"x")
    near.close(Close.GOODBYE)
    world.run(1.0)
    assert [lost.close for lost in (*left.lost, *right.lost)] == [Close.LOST, Close.LOST]
    assert not right.data


def test_backlog_is_told_and_bounded() -> None:
    world = World()
    _, near, left, _ = pair(world)
    near.write(0, bytes(HIGH_BYTES + 1))
    assert near.backlog_bytes == HIGH_BYTES + 1
    world.run(1.0)
    assert left.could_write == 1
    near.write(0, bytes(STUCK_BYTES))
    near.write(0, b"one more")
    world.run(2.0)
    assert left.lost[0].close is Close.LIMIT


def test_a_listener_may_refuse() -> None:
    def refuse(_connection: Connection) -> Ear:
        raise BusyError("full")

    world, left = World(), Ear()
    connect(Network(world.call_later), ANT, HILL, left.accept, refuse)
    world.run(1.0)
    assert left.lost == [Lost(Close.BUSY, "full", remote=True)]


def test_a_stream_that_is_over_leaves_nothing_behind() -> None:
    """A link lasts for ever and opens a stream a request."""
    world = World()
    _, near, left, right = pair(world)
    far = near.other
    for stream in range(0, 4000, 4):
        near.write(stream, b"asked", end=True)
        far.write(stream, b"answered", end=True)
    world.run(1.0)
    assert len(left.ended) == len(right.ended) == 1000
    assert not near._queues
    assert not far._queues
