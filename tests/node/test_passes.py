"""Passes through a whole node on a null device: order, windows, pins, failures. Virtual time, memory link."""

import numpy as np
import pytest

from mainspring.node.passes import BEGAN_S
from mainspring.wire import messages as m
from support.nodes import NodeRig, expected, null_backend, part


def logits(done: m.Done | m.Failed) -> np.ndarray:
    return m.f32(done.logits)


def test_a_pass_is_started_measured_and_answered() -> None:
    rig = NodeRig().join()
    stream = rig.send(part(view_key="v"), part("q", view=range(9, 30), branches=((3,),)))
    rig.run(1.0)
    started, done = rig.heard(stream)
    assert isinstance(started, m.Started)
    assert isinstance(done, m.Done)
    want = np.concatenate([expected(range(1, 51), ((5, 6), (7,))), expected(range(9, 30), ((3,),))])
    assert np.array_equal(logits(done), want)
    assert done.measured_s == pytest.approx(0.01 + 1e-5 * (50 + 21 + 4))
    assert done.gained == (("v", 50),)
    assert done.fence == m.Fence(pass_id=1, attempt=0, epoch=3)


def test_a_short_pass_is_said_to_have_begun_with_its_answer() -> None:
    rig = NodeRig(null_backend((0.004, 0.0, 0.0))).join()
    stream = rig.send(part(), predicted_s=0.004)
    rig.run(0.005)  # 2 ms on the way here
    assert rig.heard(stream) == []
    rig.run(0.02)
    started, done = rig.heard(stream)
    assert isinstance(started, m.Started)
    assert isinstance(done, m.Done)
    assert started.ago_s == pytest.approx(0.004)


def test_a_pass_that_is_not_as_short_as_predicted_is_told_of_before_it_ends() -> None:
    rig = NodeRig(null_backend((0.5, 0.0, 0.0))).join()
    stream = rig.send(part(), predicted_s=0.004)
    rig.run(0.03)
    (started,) = rig.heard(stream)
    assert isinstance(started, m.Started)
    assert started.ago_s == pytest.approx(BEGAN_S, abs=1e-4)
    rig.run(1.0)
    assert [type(message) for message in rig.heard(stream)] == [m.Started, m.Done]


def test_one_at_a_time_in_order_with_the_next_one_there() -> None:
    rig = NodeRig(null_backend((0.5, 0.0, 0.0))).join()
    streams = [rig.send(part(f"r{i}")) for i in range(3)]
    rig.run(0.4)
    assert [len(rig.heard(stream)) for stream in streams] == [1, 0, 0]
    rig.run(2.0)
    waits = [rig.done(stream).waited_s for stream in streams]
    assert waits == pytest.approx([0.0, 0.5, 1.0], abs=1e-6)


def test_what_can_not_begin_in_its_window_is_refused_at_once_and_never_run() -> None:
    rig = NodeRig(null_backend((1.0, 0.0, 0.0))).join()
    first = rig.send(part("a"))
    second = rig.send(part("b"), within_s=0.3)
    third = rig.send(part("c"), within_s=5.0)
    rig.run(0.4)
    assert rig.failed(second).reason == "late", "told while the first one still runs"
    rig.run(3.0)
    assert rig.done(first)
    assert rig.done(third)
    assert len(rig.worker.ran) == 2


def test_the_way_here_counts_against_the_window() -> None:
    rig = NodeRig(delay_s=0.2).join()
    rig.run(1.0)  # a round trip is known by now: 0.4 s
    late = rig.send(part("a"), within_s=0.19)
    early = rig.send(part("b"), within_s=0.21)
    rig.run(1.0)
    assert rig.failed(late).reason == "late"
    assert rig.done(early)


def test_a_node_that_was_stopped_discards_what_is_too_late() -> None:
    rig = NodeRig().join()
    rig.run(1.0)
    asleep = rig.member
    unread: list[tuple[int, bytes, bool]] = []
    real, polls = asleep.data_received, asleep.poll
    asleep.data_received = lambda *args: unread.append(args)
    asleep.poll = lambda: None
    old = rig.send(part("old"), within_s=1.0)
    patient = rig.send(part("patient"), within_s=60.0)
    rig.run(3.0)
    asleep.data_received, asleep.poll = real, polls
    for args in unread:
        real(*args)
    rig.run(1.0)
    assert rig.failed(old).reason == "late"
    assert rig.done(patient)


def test_a_missing_view_is_told_at_receipt_and_named() -> None:
    rig = NodeRig(null_backend((1.0, 0.0, 0.0))).join()
    running = rig.send(part("a"))
    missing = rig.send(part("b", view=(), view_from=50, prefix="nobody's", view_key="nobody's"))
    rig.run(0.1)
    failed = rig.failed(missing)
    assert (failed.reason, failed.dropped) == ("view_missing", ("nobody's",))
    rig.run(2.0)
    assert rig.done(running)


def test_a_checkpoint_of_another_length_is_a_missing_view() -> None:
    rig = NodeRig().join()
    rig.send(part("a", view_key="v"))
    rig.run(0.5)
    wrong = rig.send(part("b", view=(), view_from=49, prefix="v"))
    rig.run(0.5)
    assert (rig.failed(wrong).reason, rig.failed(wrong).dropped) == ("view_missing", ("v",))


def test_a_view_is_scanned_once_across_shards() -> None:
    """The later shards come before the first has run: they count on what it will leave."""
    rig = NodeRig().join()
    view, shards = range(1, 51), [((5, 6),), ((7,), (8, 9)), ((10,),)]
    streams = [rig.send(part(view=view, branches=shards[0], view_key="v"))]
    rest = {"view": (), "view_from": 50, "prefix": "v", "view_key": "v"}
    streams += [rig.send(part(branches=shards[index], shard=index, **rest)) for index in (1, 2)]
    rig.run(1.0)
    for stream, branches in zip(streams, shards, strict=True):
        assert np.array_equal(logits(rig.done(stream)), expected(view, branches))
    assert rig.engine.rows == 50 + 6
    assert rig.done(streams[1]).gained == ()


def test_parts_share_a_view_within_a_pass() -> None:
    rig = NodeRig().join()
    stream = rig.send(
        part(branches=((5,),), view_key="v"), part("q", view=(), branches=((7,),), view_from=50, parent=0, view_key="v")
    )
    rig.run(0.5)
    assert np.array_equal(logits(rig.done(stream)), expected(range(1, 51), ((5,), (7,))))
    assert rig.engine.rows == 52


def test_chunks_follow_without_acknowledgement() -> None:
    rig = NodeRig().join()
    view = list(range(1, 91))
    streams = [
        rig.send(part(view=view[:40], branches=(), more=True)),
        rig.send(part(view=view[40:70], branches=(), view_from=40, more=True)),
        rig.send(part(view=view[70:], branches=((5,),), view_from=70, view_key="v", more=True)),
        rig.send(part(view=(), branches=((6,), (7,)), view_from=90, view_key="v")),
    ]
    rig.run(1.0)
    got = np.concatenate([logits(rig.done(stream)) for stream in streams])
    assert np.array_equal(got, expected(view, ((5,), (6,), (7,))))
    assert rig.engine.rows == 93
    assert rig.engine.store.listing() == [(b"vv", 90)], "no half-scanned view is left"
    assert rig.scheduler.views.half_scanned == rig.engine.store.held == 0


def test_a_chunk_whose_past_failed_is_a_missing_view() -> None:
    rig = NodeRig(null_backend((1.0, 0.0, 0.0))).join()
    rig.send(part("first"))
    late = rig.send(part(view=range(1, 41), branches=(), more=True), within_s=0.5)
    orphan = rig.send(part(view=range(41, 51), view_from=40, view_key="v"), within_s=60.0)
    again = rig.send(part(view_key="v"))
    rig.run(5.0)
    assert rig.failed(late).reason == "late"
    assert rig.failed(orphan).reason == "view_missing"
    assert rig.scheduler.views.half_scanned == 0
    assert np.array_equal(logits(rig.done(again)), expected(range(1, 51), ((5, 6), (7,))))
    assert rig.engine.store.held == 0


def test_a_chunk_that_breaks_takes_its_shard_with_it() -> None:
    rig = NodeRig().join()
    rig.send(part(view=range(1, 21), branches=(), more=True))
    rig.run(0.5)
    rig.engine.backend.score_pass = lambda _work: (_ for _ in ()).throw(RuntimeError("device lost"))
    broken = rig.send(part(view=range(21, 41), branches=(), view_from=20, more=True))
    rig.run(0.5)
    assert rig.failed(broken).reason == "engine"
    assert rig.scheduler.views.half_scanned == len(rig.engine.store) == rig.engine.store.held == 0


def test_a_prefix_stays_where_it_is_when_a_view_goes_on_from_it() -> None:
    rig = NodeRig().join()
    rig.send(part("a", view=range(1, 31), branches=(), view_key="prefix"))
    ends = [list(range(31, 51)), list(range(60, 80))]
    streams = [rig.send(part("b", view=end, view_from=30, prefix="prefix")) for end in ends]
    rig.run(1.0)
    for stream, end in zip(streams, ends, strict=True):
        assert np.array_equal(logits(rig.done(stream)), expected([*range(1, 31), *end], ((5, 6), (7,))))
    assert rig.engine.store.listing() == [(b"vprefix", 30)]


def test_half_scanned_views_go_with_release_or_after_a_minute() -> None:
    rig = NodeRig().join()
    for request in ("a", "b"):
        rig.send(part(request, view=range(1, 41), branches=(), more=True))
    rig.run(1.0)
    assert rig.scheduler.views.half_scanned == len(rig.engine.store) == 2
    rig.router.send(0, m.Release(request="a"))
    rig.run(1.0)
    assert rig.scheduler.views.half_scanned == len(rig.engine.store) == 1
    assert rig.reports[-1].gained == (), "nobody else is told of them"
    rig.run(61.0)
    assert rig.scheduler.views.half_scanned == len(rig.engine.store) == rig.engine.store.held == 0


def test_a_view_that_waiting_work_needs_is_not_evicted() -> None:
    """Room for two views: a third one would push the first out while a pass waits that builds on it."""
    rig = NodeRig(null_backend((0.5, 0.0, 0.0)), cache_bytes=2 * 50 * 4096).join()
    rig.send(part("a", view_key="a"))
    rig.send(part("b", view_key="b"))
    rig.run(1.5)
    rig.send(part("first"))
    other = rig.send(part("c", view=range(2, 52), view_key="c"))
    waiting = rig.send(part("a", view=(), view_from=50, prefix="a"))
    rig.run(3.0)
    assert rig.done(other).dropped == ("b",)
    assert np.array_equal(logits(rig.done(waiting)), expected(range(1, 51), ((5, 6), (7,))))
    assert rig.engine.store.held == 0


def test_what_finds_no_room_is_told_as_dropped() -> None:
    rig = NodeRig(cache_bytes=0).join()
    stream = rig.send(part(view_key="v"))
    rig.run(0.5)
    assert (rig.done(stream).gained, rig.done(stream).dropped) == ((), ("v",))
    chunk = rig.send(part("q", view=range(1, 41), branches=(), more=True))
    rig.run(0.5)
    assert rig.failed(chunk).reason == "out_of_memory", "or its next chunk would look for it for ever"


def test_cancel_before_and_after_it_began() -> None:
    rig = NodeRig(null_backend((1.0, 0.0, 0.0))).join()
    running, waiting = rig.send(part("a", view_key="a")), rig.send(part("b", view_key="b"))
    rig.run(0.2)
    for stream in (running, waiting):
        rig.router.send(stream, m.Cancel())
    rig.run(0.2)
    assert rig.failed(waiting).reason == "cancelled"
    rig.run(2.0)
    assert rig.done(running)
    assert len(rig.worker.ran) == 1
    assert rig.engine.store.held == 0


def test_nan_never_leaves_and_poisons_nobody() -> None:
    rig = NodeRig().join()
    real = rig.engine.backend.score_pass

    def poisoned(work):
        result = real(work)
        bad = result.logits.copy()
        bad[-1] = np.nan
        return type(result)(bad, result.states, result.seconds)

    rig.engine.backend.score_pass = poisoned
    stream = rig.send(part("a", view_key="a"), part("b", view=range(2, 52), branches=((5,),), view_key="b"))
    rig.run(0.5)
    failed = rig.failed(stream)
    assert (failed.reason, failed.failed) == ("not_finite", (1,))
    assert np.array_equal(logits(failed), expected(range(1, 51), ((5, 6), (7,)))), "the sound part is answered"
    assert (failed.gained, failed.dropped) == ((("a", 50),), ("b",))
    whole = rig.send(part("c", view=range(3, 53)))
    rig.run(0.5)
    assert (rig.failed(whole).failed, rig.failed(whole).logits) == ((), b"")
    rig.engine.backend.score_pass = real
    fine = rig.send(part("b", view=range(2, 52), branches=((5,),), view_key="b"))
    rig.run(0.5)
    assert np.array_equal(logits(rig.done(fine)), expected(range(2, 52), ((5,),)))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "out_of_memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out_of_memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "out_of_memory"),
        (RuntimeError("device lost"), "engine"),
    ],
)
def test_a_pass_that_breaks_fails_alone(error: Exception, reason: str) -> None:
    rig = NodeRig().join()
    rig.send(part("kept", view_key="kept"))
    rig.run(0.5)
    real, broken = rig.engine.backend.score_pass, [error]

    def breaks_once(work):
        if broken:
            raise broken.pop()
        return real(work)

    rig.engine.backend.score_pass = breaks_once
    bad, good = rig.send(part("a", view=range(2, 52), view_key="a")), rig.send(part("b", view_key="b"))
    rig.run(1.0)
    assert rig.failed(bad).reason == reason
    assert "CUDA" not in rig.failed(bad).message
    assert rig.done(good)
    emptied = reason == "out_of_memory"
    assert (b"vkept" in rig.engine.store) is not emptied
    assert ("kept" in rig.failed(bad).dropped) is emptied
    assert rig.engine.store.held == 0


@pytest.mark.parametrize(
    "bad",
    [
        part(view=(999,)),
        part(branches=((300,),)),
        part(labels=(300,)),
        part(view=[1] * 32_768),
    ],
    ids=["view", "branch", "label", "context"],
)
def test_nonsense_is_refused_before_anything_runs(bad: m.Part) -> None:
    rig = NodeRig().join()
    stream = rig.send(part("ok", view_key="k"), bad)
    rig.run(0.5)
    assert rig.failed(stream).reason == "bad_work"
    assert rig.worker.ran == []
    assert rig.engine.store.held == 0


def test_a_queue_has_an_end() -> None:
    rig = NodeRig(null_backend((50.0, 0.0, 0.0))).join()
    streams = [rig.send(part(f"r{i}")) for i in range(260)]
    rig.run(0.5)
    refused = [rig.failed(stream) for stream in streams if rig.last(stream)]
    assert len(refused) == 260 - 1 - 256
    assert {failed.reason for failed in refused} == {"out_of_memory"}
    assert "at most 256 passes" in refused[0].message


def test_leases_are_refused_by_name() -> None:
    rig = NodeRig().join()
    stream = rig.router.open(m.OpenLease(request="r", epoch=3, prompt_tokens=5, max_tokens=5, prompt=bytes(20)))
    rig.run(0.5)
    ended = rig.last(stream)
    assert isinstance(ended, m.LeaseEnded)
    assert (ended.finish, ended.reason, ended.message) == ("failed", "bad_work", "this node does not generate")
