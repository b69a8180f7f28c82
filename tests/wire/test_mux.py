"""Streams over one: their own order kept, turns taken, nothing of a peer's kept, nothing that can't be taken."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.wire.errors import Close, SequenceError
from mainspring.wire.mux import (
    CHUNK_BYTES,
    CLOSE,
    CLOSE_BYTES,
    END,
    HEADER_BYTES,
    RESET,
    Data,
    Event,
    Mux,
    Reset,
    merged,
)
from mainspring.wire.transport import Lost

writes = st.lists(
    st.tuples(st.sampled_from([0, 4, 8, 1, 5]), st.binary(max_size=40), st.integers(1, 3000)), max_size=12
)


def header(stream: int, size: int, flags: int) -> bytes:
    return stream.to_bytes(4, "little") + size.to_bytes(3, "little") + bytes([flags])


@settings(deadline=None)
@given(writes, st.data())
def test_each_stream_arrives_in_its_own_order_in_any_pieces(
    sent: list[tuple[int, bytes, int]], data: st.DataObject
) -> None:
    left, right = Mux(dialer=True), Mux(dialer=False)
    right._opened = 5  # it has opened 1 and 5
    expected: dict[int, bytes] = {}
    for stream, piece, times in sent:
        left.write(stream, piece * times)
        expected[stream] = expected.get(stream, b"") + piece * times
    for stream in expected:
        left.write(stream, b"", end=True)
    assert left.backlog_bytes == sum(map(len, expected.values()))
    got: dict[int, bytes] = {}
    ended = []
    while left.waiting:
        wire = left.take(data.draw(st.integers(1, 60_000)))
        assert wire
        while wire:
            cut = data.draw(st.integers(1, len(wire)))
            for event in right.receive(wire[:cut]):
                assert isinstance(event, Data)
                assert event.stream not in ended
                got[event.stream] = got.get(event.stream, b"") + event.data
                ended += [event.stream] if event.end else []
            assert len(right._head) < HEADER_BYTES
            wire = wire[cut:]
    assert got == expected
    assert sorted(ended) == sorted(expected)
    assert left.backlog_bytes == 0
    assert not left._queues
    assert not left._ends


def test_streams_take_turns_and_control_goes_first() -> None:
    mux, other = Mux(dialer=True), Mux(dialer=False)
    for stream in (4, 8):
        mux.write(stream, bytes(3 * CHUNK_BYTES))
    order = [event.stream for event in other.receive(mux.take(1))]
    mux.write(0, b"ping")
    while mux.waiting:
        order += [event.stream for event in other.receive(mux.take(1)) if isinstance(event, Data)]
    assert order == [4, 0, 8, 4, 8, 4, 8]


def test_a_chunk_with_its_header_fills_one_tls_record() -> None:
    mux = Mux(dialer=True)
    mux.write(0, bytes(CHUNK_BYTES + 1))
    assert len(mux.take(1)) == CHUNK_BYTES + HEADER_BYTES == 16_384
    assert len(mux.take(1)) == 1 + HEADER_BYTES


def test_small_writes_share_a_chunk() -> None:
    mux, other = Mux(dialer=True), Mux(dialer=False)
    for _ in range(100):
        mux.write(0, b"abc")
    assert other.receive(mux.take(1 << 20)) == [Data(0, b"abc" * 100, False)]


def test_a_close_comes_last_and_once() -> None:
    mux, other = Mux(dialer=False), Mux(dialer=True)
    other.write(0, b"hello")
    mux.receive(other.take(1000))
    mux.write(0, b"last words")
    mux.close(Close.DRAINED, "enough")
    mux.close(Close.INTERNAL, "not this")
    with pytest.raises(ValueError, match="can follow"):
        mux.write(0, b"more")
    wire = mux.take(1 << 20)
    assert not mux.waiting
    mux.close(Close.INTERNAL, "nor this")
    assert not mux.waiting
    assert other.receive(wire + b"whatever") == [Data(0, b"last words", False), Lost(Close.DRAINED, "enough", True)]
    assert other.receive(b"more") == []


def test_an_unknown_close_code_is_a_fault_of_the_protocol() -> None:
    mux = Mux(dialer=True)
    assert mux.receive(header(0, 3, CLOSE) + b"\xff\xff!") == [Lost(Close.PROTOCOL, "!", True)]


def test_a_reset_is_told() -> None:
    assert Mux(dialer=False).receive(header(4, 0, RESET)) == [Reset(4)]


@pytest.mark.parametrize(
    ("dialer", "stream", "size", "flags"),
    [
        (True, 1, CHUNK_BYTES + 1, 0),
        (True, 1, 0, 8),
        (True, 1, 0, END | RESET),
        (True, 1, 1, RESET),
        (True, 0, 1, CLOSE),
        (True, 0, CLOSE_BYTES + 1, CLOSE),
        (True, 2, 0, 0),
        (True, 3, 0, 0),
        (True, 4, 0, 0),  # ours, never opened
        (False, 1, 0, 0),
        (False, 6, 0, 0),
    ],
)
def test_what_no_sound_peer_sends_is_refused_from_the_header(dialer: bool, stream: int, size: int, flags: int) -> None:
    mux = Mux(dialer=dialer)
    with pytest.raises(SequenceError):
        mux.receive(header(stream, size, flags))
    assert mux.receive(bytes(100)) == []


@settings(deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=10), st.booleans())
def test_rubbish_is_events_or_an_error_and_nothing_is_kept(pieces: list[bytes], dialer: bool) -> None:
    mux = Mux(dialer=dialer)
    try:
        for piece in pieces:
            heard = mux.receive(piece)
            assert sum(len(event.data) for event in heard if isinstance(event, Data)) <= len(piece)
            assert len(mux._head) <= CLOSE_BYTES
    except SequenceError:
        assert mux.receive(b"x" * 50) == []


def test_what_came_together_is_one_event_and_order_stays() -> None:
    came = [
        Data(4, b"a", False), Data(4, b"b", False), Data(0, b"ping", False), Data(4, b"c", False), Data(4, b"", True),
        Data(8, b"d", True), Data(8, b"e", False), Reset(8), Lost(Close.GOODBYE, "", remote=True),
    ]  # fmt: skip
    assert list(merged(came)) == [
        Data(4, b"ab", False), Data(0, b"ping", False), Data(4, b"c", True), Data(8, b"d", True), Data(8, b"e", False),
        Reset(8), Lost(Close.GOODBYE, "", remote=True),
    ]  # fmt: skip


def test_what_came_before_an_error_is_heard_before_it() -> None:
    def events() -> Iterator[Event]:
        yield Data(4, b"a", False)
        raise SequenceError("what follows can't be")

    found = merged(events())
    assert next(found) == Data(4, b"a", False)
    with pytest.raises(SequenceError):
        next(found)
