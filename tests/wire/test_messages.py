"""Records: what is sent comes back, neighbours of one version read each other, rubbish is an error and no crash."""

from contextlib import suppress

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.wire import messages as m
from mainspring.wire.errors import MessageError
from mainspring.wire.exchanges import EXCHANGES, ON_CONTROL
from mainspring.wire.frames import FrameDecoder
from support.links import fence, offer, work

SOME: list[m.Message] = [
    m.Hello(role="node", name="ant", instance=1 << 52),
    m.Welcome(version=1, epoch=3, router=9),
    m.Ping(nonce=4),
    offer(),
    m.NodeReport(fresh=True, gained=(("k", 500),), dropped=("j",), state="busy"),
    work(parts=(m.Part(request="r", view_tokens=b"\1\0\0\0"), m.Part(request="s", view_from=1, parent=0))),
    m.Done(fence=fence(), measured_s=0.25, logits=np.ones(3, "<f4").tobytes(), gained=(("k", 5),)),
    m.Failed(fence=fence(), reason="view_missing", failed=(1,), dropped=("k",)),
    m.Failed(
        fence=fence(), reason="bad_work", details=(m.Detail(index=1, code="bad_grammar", message="no", param="g"),)
    ),
    m.OpenLease(
        request="r",
        epoch=3,
        prompt_tokens=2,
        max_tokens=5,
        prompt=bytes(8),
        marks=(("k", 2),),
        sampling=m.Sampling(logit_bias={5: -1.0}),
    ),
    m.Rounds(tokens=b"\1\0\0\0\2\0\0\0", logprobs=b"\0" * 8),
    m.LeaseEnded(tokens=2, finish="stop"),
    m.BundleData(data=b"piece"),
    m.Submit(request="r", model="tiny", slo="standard", view_tokens=b"\1\0\0\0", max_tokens=4, sampling=m.Sampling()),
    m.Refused(code="contention", message="no", status=429, retry_after_s=0.5),
    m.Status(router=1, up_s=5.0, version="x"),
]


@pytest.mark.parametrize("message", SOME, ids=lambda message: type(message).__name__)
def test_what_is_sent_comes_back(message: m.Message) -> None:
    [(kind, payload)] = FrameDecoder(m.CAPS).feed(m.encode(message))
    assert m.decode(kind, payload) == message


@pytest.mark.parametrize(
    "message",
    [
        m.Status(router=1, up_s=90_000.0, version="x", passes=(m.PassStatus(
            node="ant", pass_id=1, ago_s=1e6, predicted_s=0.1, measured_s=0.1, parts=1, tokens=5),)),
        m.Result(logits=b"", queue_s=1e5, device_s=1e5, total_s=1e5),
        m.NodeReport(idle_s=1e5),
    ],
    ids=lambda message: type(message).__name__,
)  # fmt: skip
def test_what_lasts_longer_than_a_day_can_be_told(message: m.Message) -> None:
    [(kind, payload)] = FrameDecoder(m.CAPS).feed(m.encode(message))
    assert m.decode(kind, payload) == message


def test_every_record_has_a_kind_of_its_own_and_a_place() -> None:
    assert len(set(m.KIND_OF.values())) == len(m.KIND_OF)
    placed = {m.Hello, m.Welcome}.union(*ON_CONTROL.values())
    for first, exchange in EXCHANGES.items():
        placed |= {first} | exchange.asks | exchange.tells | exchange.ends
    assert placed == set(m.KIND_OF)


def test_a_later_version_may_append() -> None:
    newer = msgspec.msgpack.encode([*msgspec.to_builtins(fence()).copy(), 5, {"new": 1}])
    assert msgspec.msgpack.decode(newer, type=m.Fence) == fence()
    hello = msgspec.msgpack.encode({"role": "node", "name": "ant", "instance": 1, "colour": "red"})
    assert m.decode(m.KIND_OF[m.Hello], hello) == m.Hello(role="node", name="ant", instance=1)
    older = msgspec.msgpack.encode([[1, 0, 3]])
    assert m.decode(m.KIND_OF[m.Started], older) == m.Started(fence=fence())


@given(st.sampled_from(sorted(m.KIND_OF.values())), st.binary(max_size=300))
def test_rubbish_is_an_error(kind: int, payload: bytes) -> None:
    with suppress(MessageError):
        m.decode(kind, payload)


@pytest.mark.parametrize(
    "part",
    [
        m.Part(request="r", view_tokens=b"abc"),
        m.Part(request="r", branch_lengths=b"\1\0\0\0", branch_tokens=b"\0\0\0\0"),
        m.Part(request="r", branch_lengths=b"\2\0\0\0", branch_tokens=b"\0\0\0\0", label_counts=b"\0\0\0\0"),
        m.Part(request="r", branch_lengths=b"\0\0\0\0", label_counts=b"\1\0\0\0", label_ids=b"\0\0\0\0"),
        m.Part(request="r", parent=0),
    ],
)
def test_lengths_that_do_not_agree(part: m.Part) -> None:
    with pytest.raises(MessageError):
        m.decode(m.KIND_OF[m.Work], m.encode(work(parts=(part,)))[8:])


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_durations_are_finite_and_not_negative(seconds: float) -> None:
    with pytest.raises(MessageError, match="kind 16"):
        m.decode(m.KIND_OF[m.Work], m.encode(work(start_within_s=seconds))[8:])


def test_deep_nesting_is_an_error() -> None:
    with pytest.raises(MessageError):
        m.decode(m.KIND_OF[m.Ping], b"\x93\x01\x02" + b"\x91" * 100_000 + b"\x01")


@pytest.mark.parametrize("branches", [0, 1, 8, 256, 257, 5000])
def test_lengths_are_checked_alike_whatever_their_number(branches: int) -> None:
    lengths = np.full(branches, 2, "<u4")
    tokens, ids = bytes(8 * branches), bytes(8 * branches)
    m.check_branches(lengths.tobytes(), tokens, lengths.tobytes(), ids)
    with pytest.raises(MessageError, match="sum"):
        m.check_branches(lengths.tobytes(), tokens + bytes(4), lengths.tobytes(), ids)
    if branches > 1:
        lengths[0], lengths[-1] = 4, 0
        with pytest.raises(MessageError, match="empty"):
            m.check_branches(lengths.tobytes(), tokens, lengths.tobytes(), ids)
    if branches:
        lengths[:] = 0xFFFF_FFFF  # no sum wraps round
        with pytest.raises(MessageError, match="sum"):
            m.check_branches(lengths.tobytes(), tokens, lengths.tobytes(), ids)
    if branches > 1:
        lengths[:] = 2
        lengths[:2] += 1 << 31  # what wraps round would be right again
        with pytest.raises(MessageError, match="sum"):
            m.check_branches(lengths.tobytes(), tokens, lengths.tobytes(), ids)
