"""One link under virtual time: joining, exchanges, fencing, order, liveness, limits."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.wire import messages as m
from mainspring.wire.errors import Close, LimitError
from mainspring.wire.frames import HEADER
from mainspring.wire.link import END_S, CloseConnection, Closed, Knock, Link, Output, Received, Rules, Write
from mainspring.wire.transport import Identity
from support.links import Rig, fence, offer, work

LEASE = m.OpenLease(request="r", epoch=3, prompt_tokens=1, max_tokens=1, prompt=bytes(4))
ANT = Identity("fleet", "node", "ant")


def test_a_pass_there_and_back() -> None:
    rig = Rig().join()
    rig.left.send(0, offer())
    stream = rig.right.open(work())
    rig.run(0.1)
    assert [e.stream for e in rig.left.got(m.Work)] == [stream]
    rig.left.send(stream, m.Started(fence=fence()))
    rig.left.send(stream, m.Done(fence=fence(), measured_s=0.1))
    rig.run(0.1 + END_S)
    assert [e.last for e in rig.right.got(m.Started) + rig.right.got(m.Done)] == [False, True]
    assert rig.left.link.open_streams == rig.right.link.open_streams == 0
    assert rig.right.link.round_trip_s == pytest.approx(0.02)


def test_a_request_there_and_back() -> None:
    rig = Rig("client").join()
    stream = rig.left.open(m.Submit(request="r", model="tiny", slo="standard", view_tokens=b"\1\0\0\0"))
    rig.run(0.1)
    rig.right.send(stream, m.Accepted(predicted_s=0.5))
    rig.right.send(stream, m.Result(logits=b"\0\0\0\0"))
    rig.run(0.1 + END_S)
    assert rig.left.got(m.Result)[0].last
    assert rig.left.link.open_streams == rig.right.link.open_streams == 0


def ended(outputs: list[Output]) -> list[int]:
    return [each.stream for each in outputs if isinstance(each, Write) and each.end]


def answered(rig: Rig, now_s: float) -> int:
    """A pass whose answer the router's link has just read; its stream."""
    link = rig.right.link
    link.poll(now_s)
    stream = link.open(work(), now_s)
    link.poll(now_s)
    heard = link.receive(stream, m.encode(m.Done(fence=fence(), measured_s=0.1)), True, now_s)
    assert isinstance(heard[-1], Received)
    assert heard[-1].last
    return stream


def test_the_end_of_a_stream_goes_out_with_the_next_pass_and_before_it() -> None:
    rig = Rig().join()
    rig.left.send(0, offer())
    rig.run(0.1)
    now_s, link = rig.world.now_s, rig.right.link
    stream = answered(rig, now_s)
    assert ended(link.poll(now_s)[0]) == []
    later = link.open(work(pass_id=2), now_s + 0.01)
    written = [each.stream for each in link.poll(now_s + 0.01)[0] if isinstance(each, Write)]
    assert written == [stream, later]


def test_the_end_of_a_stream_goes_out_by_itself_when_nothing_else_does() -> None:
    rig = Rig().join()
    rig.left.send(0, offer())
    rig.run(0.1)
    now_s, link = rig.world.now_s, rig.right.link
    stream = answered(rig, now_s)
    due_s = link.next_deadline()
    assert due_s is not None
    assert due_s <= now_s + END_S
    assert ended(link.poll(now_s + END_S)[0]) == [stream]
    assert ended(link.poll(now_s + 2 * END_S)[0]) == []


def test_the_end_of_a_stream_goes_out_at_once_where_half_of_all_are_open() -> None:
    rig = Rig(rules=Rules(streams=4)).join()
    rig.left.send(0, offer())
    rig.run(0.1)
    now_s, link = rig.world.now_s, rig.right.link
    for number in range(3):
        link.open(work(pass_id=10 + number), now_s)
    stream = answered(rig, now_s)
    assert ended(link.poll(now_s)[0]) == [stream]


def test_a_cancel_that_crosses_the_answer_is_ignored() -> None:
    rig = Rig().join()
    stream = rig.right.open(work())
    rig.run(0.1)
    rig.left.send(stream, m.Done(fence=fence(), measured_s=0.1))
    rig.right.send(stream, m.Cancel())
    rig.run(0.1)
    rig.right.send(stream, m.Cancel())
    assert not rig.left.got(m.Cancel)
    assert rig.right.got(m.Done)
    assert rig.left.closed is rig.right.closed is None


@pytest.mark.parametrize("change", [{"pass_id": 2}, {"attempt": 1}, {"epoch": 4}])
def test_a_report_about_work_the_node_does_not_hold_ends_the_link(change: dict[str, int]) -> None:
    rig = Rig().join()
    stream = rig.right.open(work())
    rig.run(0.1)
    rig.left.send(stream, m.Done(fence=fence(**change), measured_s=0.1))
    rig.run(0.1)
    assert rig.right.closed is not None
    assert rig.right.closed.close is Close.FENCE
    assert rig.right.closed.open == (stream,)
    assert rig.left.closed is not None
    assert rig.left.closed.remote


def test_answering_twice_ends_the_link() -> None:
    rig = Rig().join()
    stream = rig.right.open(work())
    rig.run(0.1)
    done = m.encode(m.Done(fence=fence(), measured_s=0.1))
    rig.left.connection.write(stream, done + done)
    rig.run(0.1)
    assert len(rig.right.got(m.Done)) == 1
    assert rig.right.closed is not None
    assert rig.right.closed.close is Close.PROTOCOL


def test_passes_come_in_the_order_they_were_sent() -> None:
    rig = Rig().join()
    delays = [0.01, 0.3, 0.02, 0.2]
    rig.network.delay_s = lambda stream: delays.pop() if stream and delays else 0.01
    streams = [rig.right.open(work(pass_id)) for pass_id in (1, 2, 3)]
    rig.right.send(streams[1], m.Cancel())
    rig.run(1.0)
    heard = [e for e in rig.left.heard if isinstance(e, Received)]
    ids = [e.message.fence.pass_id if isinstance(e.message, m.Work) else "cancel" for e in heard]
    assert [each for each in ids if each != "cancel"] == [1, 2, 3]
    assert ids.index("cancel") > ids.index(2)
    assert heard[ids.index(2)].age_s == pytest.approx(0.19)


@pytest.mark.parametrize("hello", [{"name": "bee"}, {"role": "client"}, {"role": "router"}])
def test_the_certificate_decides_name_and_role(hello: dict[str, str]) -> None:
    link = Link.answer(ANT, 0.0)
    said = m.Hello(**{"role": "node", "name": "ant", "instance": 1, **hello})
    [event] = link.receive(0, m.encode(said), False, 0.0)
    assert isinstance(event, Closed)
    assert event.close is Close.IDENTITY


@pytest.mark.parametrize(("oldest", "newest", "fits"), [(1, 1, True), (0, 1, True), (1, 9, True), (3, 9, False)])
def test_versions(oldest: int, newest: int, fits: bool) -> None:
    link = Link.answer(ANT, 0.0)
    said = m.Hello(role="node", name="ant", instance=1, oldest=oldest, newest=newest)
    [event] = link.receive(0, m.encode(said), False, 0.0)
    assert isinstance(event, Knock) == fits
    assert fits or (isinstance(event, Closed) and event.close is Close.VERSION)


@pytest.mark.parametrize("stream", [0, 4, 1])
def test_before_the_welcome_only_a_small_hello_may_come(stream: int) -> None:
    link = Link.answer(ANT, 0.0)
    size = m.Hello.cap + 1 if stream == 0 else 4
    events = link.receive(stream, HEADER.pack(size, 1, 0, 0), False, 0.0)
    assert [type(event) for event in events] == [Closed]


def test_nobody_waits_for_a_hello_for_ever() -> None:
    link = Link.answer(ANT, 0.0)
    assert link.next_deadline() == 5.0
    outputs, events = link.poll(5.0)
    assert isinstance(outputs[0], CloseConnection)
    assert isinstance(events[0], Closed)
    assert link.next_deadline() is None


def test_silence_is_noticed_by_both_sides_within_the_idle_timeout() -> None:
    rig = Rig().join()
    rig.run(20.0)
    assert rig.left.closed is rig.right.closed is None
    rig.network.cut()
    cut_s = rig.world.now_s
    while rig.right.closed is None and rig.world.now_s < cut_s + 6.2:
        rig.run(0.1)
    assert rig.right.closed is not None
    assert rig.right.closed.close is Close.IDLE
    assert rig.left.closed is not None
    assert not rig.right.closed.orderly


def test_what_lay_there_while_the_node_was_stopped_comes_with_its_age() -> None:
    rig = Rig().join()
    rig.right.open(work(1))
    rig.run(0.1)
    assert rig.left.got(m.Work)[0].age_s == 0.0
    rig.left.asleep = True
    rig.right.open(work(2))
    rig.run(1.5)
    rig.left.wake()
    assert rig.left.got(m.Work)[1].age_s >= 1.5
    rig.run(0.5)
    rig.right.open(work(3))
    rig.run(0.1)
    assert rig.left.got(m.Work)[2].age_s == 0.0


def test_goodbye_is_orderly() -> None:
    rig = Rig().join()
    rig.left.close(Close.GOODBYE)
    rig.run(0.5)
    assert rig.right.closed is not None
    assert rig.right.closed.orderly
    assert rig.right.got(m.Goodbye)


def test_as_many_streams_as_agreed() -> None:
    rig = Rig("client", rules=Rules(streams=2)).join()
    ask = m.Submit(request="r", model="tiny", slo="standard", view_tokens=b"\1\0\0\0")
    first = rig.left.open(ask)
    rig.left.open(ask)
    with pytest.raises(LimitError):
        rig.left.open(ask)
    rig.run(0.1)
    rig.right.send(first, m.Refused(code="contention", message="no", status=429))
    rig.run(0.1)
    rig.left.open(ask)
    frame = m.encode(ask)
    rig.left.connection.write(16, frame)
    rig.run(0.1)
    assert rig.right.closed is not None
    assert rig.right.closed.close is Close.LIMIT


def test_a_pass_that_finds_no_stream_leaves_no_gap_in_the_order() -> None:
    rig = Rig(rules=Rules(streams=1)).join()
    stream = rig.right.open(work(1))
    with pytest.raises(LimitError):
        rig.right.open(work(2))
    rig.run(0.1)
    rig.left.send(stream, m.Done(fence=fence(1), measured_s=0.1))
    rig.run(0.1)
    rig.right.open(work(2))
    rig.run(0.1)
    assert [e.message.fence.pass_id for e in rig.left.got(m.Work) if isinstance(e.message, m.Work)] == [1, 2]


def test_unfinished_frames_are_bounded_over_all_streams() -> None:
    rig = Rig("client", rules=Rules(buffered_bytes=1000)).join()
    for stream in (4, 8, 12):
        rig.left.connection.write(stream, HEADER.pack(5000, m.KIND_OF[m.Submit], 0, 0) + bytes(400))
    rig.run(0.1)
    assert rig.right.closed is not None
    assert rig.right.closed.close is Close.LIMIT


@pytest.mark.parametrize("message", [work(), LEASE])
def test_only_the_router_opens_work(message: m.Message) -> None:
    rig = Rig().join()
    rig.left.connection.write(4, m.encode(message))
    rig.run(0.1)
    assert rig.right.closed is not None
    assert rig.right.closed.close is Close.PROTOCOL


def test_nothing_is_opened_before_the_newcomer_is_heard() -> None:
    rig = Rig()
    rig.run(0.05)
    rig.right.link.welcome(3, 11, rig.world.now_s)
    with pytest.raises(ValueError, match="not open"):
        rig.right.link.open(work(), rig.world.now_s)


chunks = st.lists(
    st.tuples(st.sampled_from([0, 1, 4, 5, 8, 400]), st.binary(max_size=40), st.booleans()), max_size=8
)  # fmt: skip
sound = st.sampled_from([work(), m.Cancel(), m.Ping(nonce=1), offer(), m.Done(fence=fence(), measured_s=1.0)])


@settings(max_examples=300)
@given(st.booleans(), st.lists(st.tuples(st.sampled_from([0, 1, 4, 5, 8]), sound, st.booleans()), max_size=6), chunks)
def test_whatever_comes_is_events_then_silence(
    left: bool, messages: list[tuple[int, m.Message, bool]], rubbish: list[tuple[int, bytes, bool]]
) -> None:
    rig = Rig().join()
    end = rig.left if left else rig.right
    for stream, data, last in [*((s, m.encode(each), e) for s, each, e in messages), *rubbish]:
        before = end.closed
        heard = end.link.receive(stream, data, last, rig.world.now_s)
        assert not (before and heard)
        end.heard += heard
    assert sum(isinstance(event, Closed) for event in end.heard) <= 1
    assert end.link.open_streams <= 8


def test_the_epoch_of_work_is_the_welcomed_one() -> None:
    rig = Rig().join()
    rig.right.connection.write(1, m.encode(msgspec.structs.replace(work(), fence=fence(epoch=2), order=1)))
    rig.run(0.1)
    assert rig.left.closed is not None
    assert rig.left.closed.close is Close.FENCE


def test_a_lease_is_heard_before_its_passes_whichever_comes_first() -> None:
    rig = Rig().join()
    slow = rig.right.link.open(LEASE, rig.world.now_s)
    fast = rig.right.link.open(work(1), rig.world.now_s)
    outputs, _ = rig.right.link.poll(rig.world.now_s)
    frames = {output.stream: output.data for output in outputs if isinstance(output, Write)}
    rig.right.connection.write(fast, frames[fast])
    rig.run(0.3)
    assert not rig.left.got(m.Work), "it waits for what was sent before it"
    rig.right.connection.write(slow, frames[slow])
    rig.run(0.3)
    kinds = [type(event.message) for event in rig.left.heard if isinstance(event, Received)]
    assert kinds == [m.OpenLease, m.Work]
    assert rig.left.got(m.Work)[0].age_s >= 0.3


def test_a_lease_for_another_life_of_the_node_ends_the_link() -> None:
    rig = Rig().join()
    rig.right.connection.write(1, m.encode(msgspec.structs.replace(LEASE, epoch=2, order=1)))
    rig.run(0.1)
    assert rig.left.closed is not None
    assert rig.left.closed.close is Close.FENCE
