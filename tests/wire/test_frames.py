"""Frames: any split gives the same frames; what may not come is refused from the header alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.wire.errors import FrameError, FrameTooLargeError
from mainspring.wire.frames import HEADER, FrameDecoder, encode_frame

CAPS = {1: 4, 2: 64, 9: 1 << 20}
frames = st.lists(st.tuples(st.sampled_from([2, 9]), st.binary(max_size=64)), max_size=8)


@given(frames, st.data())
def test_any_split_gives_the_same_frames(sent: list[tuple[int, bytes]], data: st.DataObject) -> None:
    wire = b"".join(encode_frame(kind, payload) for kind, payload in sent)
    decoder, got, at = FrameDecoder(CAPS), [], 0
    while at < len(wire):
        step = data.draw(st.integers(1, max(1, len(wire) - at)))
        got += decoder.feed(wire[at : at + step])
        at += step
    decoder.finish()
    assert got == sent


@given(st.binary(max_size=200))
def test_rubbish_is_frames_or_an_error_never_a_crash(data: bytes) -> None:
    decoder = FrameDecoder(CAPS)
    try:
        decoder.feed(data)
    except FrameError:
        assert decoder.buffered == 0
    else:
        assert decoder.buffered <= max(len(data), HEADER.size)


def test_too_large_is_refused_before_its_payload_comes() -> None:
    with pytest.raises(FrameTooLargeError, match="at most 4"):
        FrameDecoder(CAPS).feed(HEADER.pack(5, 1, 0, 0))


def test_a_kind_without_a_cap_may_not_come() -> None:
    with pytest.raises(FrameError, match="kind 3"):
        FrameDecoder(CAPS).feed(encode_frame(3, b""))


@pytest.mark.parametrize("header", [(0, 1, 1, 0), (0, 1, 0, 1), (0, 0, 0, 0)])
def test_reserved_bits_and_kind_zero(header: tuple[int, int, int, int]) -> None:
    with pytest.raises(FrameError):
        FrameDecoder(CAPS).feed(HEADER.pack(*header))


def test_nothing_follows_a_broken_frame() -> None:
    decoder = FrameDecoder(CAPS)
    with pytest.raises(FrameError):
        decoder.feed(encode_frame(3, b""))
    with pytest.raises(FrameError):
        decoder.feed(encode_frame(2, b"fine"))


def test_caps_can_change_between_two_frames_that_came_together() -> None:
    decoder = FrameDecoder({1: 4})
    decoder.push(encode_frame(1, b"hi") + encode_frame(2, b"now allowed"))
    assert decoder.next() == (1, b"hi")
    decoder.caps = CAPS
    assert decoder.next() == (2, b"now allowed")


def test_a_stream_that_ends_within_a_frame() -> None:
    decoder = FrameDecoder(CAPS)
    decoder.feed(encode_frame(2, b"abc")[:-1])
    with pytest.raises(FrameError, match="within"):
        decoder.finish()


def test_frames_that_no_decoder_would_take_are_not_made() -> None:
    with pytest.raises(ValueError, match="kind 256"):
        encode_frame(256, b"")
