"""Sound talk between two links, spoiled on the way: either end has events and at most one end, never a crash."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.wire import messages as m
from mainspring.wire.link import Closed, Rules
from support.links import End, Rig, fence, offer, work

RULES = Rules(streams=8, buffered_bytes=4096)
spoilers = st.lists(
    st.tuples(
        st.integers(0, 12), st.integers(0, 2000), st.sampled_from(["flip", "cut", "insert", "repeat", "lose", "end"]),
        st.binary(min_size=1, max_size=40),
    ), min_size=1, max_size=4,
)  # fmt: skip


def spoil(data: bytes, at: int, how: str, junk: bytes) -> bytes:
    at %= len(data) + 1
    if how == "flip" and at < len(data):
        return data[:at] + bytes([data[at] ^ (junk[0] | 1)]) + data[at + 1 :]
    if how == "cut":
        return data[:at]
    if how == "insert":
        return data[:at] + junk + data[at:]
    if how == "repeat":
        return data + data
    return b"" if how == "lose" else data


def tamper(end: End, spoiled: dict[int, tuple[int, str, bytes]]) -> None:
    """What `end` hears from now on comes spoiled."""
    count = 0
    sound: Callable[[int, bytes, bool], None] = end.data_received

    def hear(stream: int, data: bytes, last: bool) -> None:
        nonlocal count
        if change := spoiled.get(count):
            data, last = spoil(data, *change), last or change[1] == "end"
        count += 1
        sound(stream, data, last)
        assert end.link._buffered <= RULES.buffered_bytes + 4096

    end.data_received = hear  # type: ignore[method-assign]


@settings(max_examples=300, deadline=None)
@given(spoilers, spoilers, st.integers(0, 60), st.booleans())
def test_spoiled_talk_ends_in_order(
    to_node: list[tuple[int, int, str, bytes]], to_router: list[tuple[int, int, str, bytes]], pieces: int, early: bool
) -> None:
    rig = Rig(rules=RULES)
    ends = ((rig.left, to_node), (rig.right, to_router))
    if early:  # the hello and the welcome too
        for end, changes in ends:
            tamper(end, {number: rest for number, *rest in changes})  # type: ignore[misc]
    rig.network.pieces = pieces
    rig.run(0.3)
    if rig.right.closed is None and rig.right.heard:
        rig.right.link.welcome(3, 11, rig.world.now_s)
        rig.right.turn()
    rig.run(0.3)
    if not early:
        for end, changes in ends:
            tamper(end, {number: rest for number, *rest in changes})  # type: ignore[misc]
    talk(rig)
    rig.run(30.0)
    for end, _ in ends:
        closed = [at for at, event in enumerate(end.heard) if isinstance(event, Closed)]
        assert closed in ([], [len(end.heard) - 1])
        assert end.link.open_streams <= RULES.streams + 1
    # One end alone can't go on: what the one has ended, the other knows within the idle timeout.
    assert (rig.left.closed is None) == (rig.right.closed is None)


def talk(rig: Rig) -> None:
    for turn in range(4):
        if rig.left.closed is None and rig.left.link.version:
            rig.left.send(0, offer() if turn == 0 else m.NodeReport(waiting=turn))
            for got in rig.left.got(m.Work):
                if isinstance(got.message, m.Work) and rig.left.link._streams.get(got.stream) is not None:
                    state = rig.left.link._streams[got.stream]
                    if not state.over:
                        rig.left.send(got.stream, m.Done(fence=got.message.fence, measured_s=0.1))
        if rig.right.closed is None and rig.right.link._answered:
            rig.right.open(work(turn + 1))
            rig.right.open(m.FetchBundle(bundle="b"))
        rig.run(0.2)


def test_the_talk_itself_is_sound() -> None:
    rig = Rig(rules=RULES).join()
    rig.run(0.2)
    talk(rig)
    rig.run(1.0)
    assert rig.left.closed is rig.right.closed is None
    assert len(rig.right.got(m.Done)) >= 3
    assert all(got.message.fence == fence(n + 1) for n, got in enumerate(rig.right.got(m.Done)))  # type: ignore[union-attr]
