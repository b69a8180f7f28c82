"""Races and echoes: what is answered once, by whom, and what a node can say without doing harm."""

from itertools import pairwise
from math import inf, isnan, nan

import pytest

from mainspring.core.actions import Answer, CloseLease, DropPass, OpenLease
from mainspring.core.events import Cancel, LeaseEnded, NodeDraining, NodeJoined, NodeLeft, Timer, WorkDone, WorkFailed
from mainspring.core.nouns import Pass, Request, SloClass
from mainspring.core.refusals import BadShapeError
from mainspring.core.router import Router
from router_rig import FAST, ROUND, SLOW, Desk, Limits, generate, node, score

BRANCHES = 8


def on(desk: Desk, name: str) -> list[Pass]:
    return [work for work in desk.passes() if work.node_id == name]


def run_until_tail(desk: Desk, name: str) -> tuple[Pass, Pass]:
    """Run a chunked score on a node until its last two passes are there, each with some of the branches."""
    for count in range(50):
        work = on(desk, name)[count]
        desk.start(work)
        end = desk.now + work.predicted_s
        follow(desk, name, count + 2)
        works = on(desk, name)
        if works[-1].parts[0].branch_to == BRANCHES:
            assert works[-2] is work
            assert works[-1].parts[0].branch_from > 0
            return work, works[-1]
        desk.finish(work, at=end)
    raise AssertionError("never came to its end")


def follow(desk: Desk, name: str, count: int) -> None:
    """Let time pass until the node has been sent so many passes."""
    for _ in range(10):
        if len(on(desk, name)) >= count:
            return
        desk.tell(Timer(), max(desk.now, desk.router.next_deadline() or 0.0))
    raise AssertionError("no further pass")


def silent(desk: Desk) -> None:
    """Wait until whatever a silent node holds has been given to others."""
    for _ in range(20):
        when = desk.router.next_deadline()
        if when is None or when > desk.now + 3.0:
            return
        desk.tell(Timer(), max(when, desk.now))


def long_score(name: str = "a", slo: str = "batch") -> Request:
    return score(name, slo, view=15_000, branches=BRANCHES)


def test_the_end_of_a_time_that_is_none_is_a_step_of_the_clock() -> None:
    desk = Desk(node())
    for moment in (inf, nan, -inf):
        desk.router.handle(Timer(), moment)
    assert desk.router.counters.clock_steps == 3
    desk.submit(score("a"))
    assert desk.admitted() == ["a"]


@pytest.mark.parametrize("target", [0.0, -1.0, nan, inf])
def test_classes_without_a_usable_target_make_no_router(target: float) -> None:
    with pytest.raises(BadShapeError):
        Router([SloClass("interactive", 2, 4.0, target)])
    with pytest.raises(BadShapeError):
        Router([SloClass("interactive", 2, 4.0, 1.0, target)])
    with pytest.raises(BadShapeError):
        Router([SloClass("interactive", 2, nan, 1.0)])


def test_an_endless_pass_leaves_the_wasted_time_finite() -> None:
    desk = Desk(node())
    desk.submit(score("a"))
    (work,) = desk.passes()
    desk.start(work)
    desk.tell(Cancel("a"))
    desk.tell(WorkDone("n", 0, work.id, inf))
    assert (desk.router.counters.wasted_passes, desk.router.counters.wasted_s) == (1, 0.0)


@pytest.mark.parametrize("failed", [(99,), (-1,), (0, 7)])
def test_a_failure_of_parts_that_never_were_answers_nothing(failed: tuple[int, ...]) -> None:
    desk = Desk(node())
    desk.submit(score("a"))
    (work,) = desk.passes()
    desk.start(work)
    actions = desk.tell(WorkFailed("n", 0, work.id, False, failed))
    assert not desk.answered()
    assert [part.request_id for again in desk.passes(actions) for part in again.parts] == ["a"]


def test_a_pass_is_believed_only_from_the_node_that_holds_it() -> None:
    desk = Desk(node("a"), node("b"))
    desk.submit(score("r"))
    (work,) = desk.passes()
    other = "b" if work.node_id == "a" else "a"
    desk.tell(WorkDone(other, 0, work.id, 0.01))
    assert not desk.answered()
    assert desk.router.counters.stale == 1
    desk.finish(work)
    assert desk.answered() == ["r"]


def test_the_echo_of_a_last_chunk_does_not_stand_for_the_chunk_before_it() -> None:
    desk = Desk(node("x", SLOW))
    desk.submit(long_score())
    first, last = run_until_tail(desk, "x")
    silent(desk)
    desk.tell(NodeJoined(node("y", SLOW)))
    run_until_tail(desk, "y")
    desk.tell(WorkDone("x", 0, first.id, first.predicted_s))
    desk.tell(WorkDone("x", 0, last.id, last.predicted_s))
    for work in on(desk, "y")[-2:]:
        desk.finish(work)
    (answer,) = [action for action in desk.log if isinstance(action, Answer)]
    parts = {work.id: work.parts for work in desk.passes()}
    covered = [parts[pass_id][index] for pass_id, index in answer.parts]
    bounds = [(part.branch_from, part.branch_to) for part in covered if part.rows]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == BRANCHES
    assert all(before[1] == after[0] for before, after in pairwise(bounds))


def test_results_out_of_order_are_run_again_rather_than_answered_in_part() -> None:
    desk = Desk(node("x", SLOW))
    desk.submit(long_score())
    first, last = run_until_tail(desk, "x")
    desk.finish(last)
    assert not desk.answered()
    desk.finish(first)
    assert not desk.answered()
    assert desk.router.state.models["m"].queued() + len(desk.router.state.passes) > 0


def test_shards_under_way_keep_a_retried_one_within_their_numerics_class() -> None:
    desk = Desk(node("a"), node("b"), node("c", numerics="fp8"))
    desk.submit(score("r", "standard", view=500, branches=400))
    used = {work.node_id for work in desk.passes()}
    assert used == {"a", "b"}
    desk.tell(NodeLeft("a", 0, crashed=False))
    assert not on(desk, "c")


def test_a_request_of_which_nothing_is_left_may_change_its_numerics_class() -> None:
    desk = Desk(node("a"))
    desk.submit(score("r", "standard"))
    desk.tell(NodeJoined(node("c", numerics="fp8")))
    desk.tell(NodeLeft("a", 0, crashed=False))
    assert [part.request_id for work in on(desk, "c") for part in work.parts] == ["r"]


def test_a_new_life_of_a_node_gives_the_work_of_the_old_one_to_whoever_is_idle() -> None:
    desk = Desk(node("a"), node("b"))
    desk.submit(score("r"))
    (work,) = desk.passes()
    other = "b" if work.node_id == "a" else "a"
    actions = desk.tell(NodeJoined(node(work.node_id, model="q", epoch=1)))
    assert [again.node_id for again in desk.passes(actions)] == [other]
    assert not any(held.node_id == work.node_id and held.epoch == 0 for held in desk.passes(actions))
    desk.tell(WorkDone(work.node_id, 0, work.id, 0.01))
    assert not desk.answered()


def test_a_node_that_is_gone_is_told_nothing() -> None:
    """Its work is condemned while a second chunk of it waits there."""
    desk = Desk(node("x", SLOW))
    desk.submit(long_score())
    for epoch in range(2):
        desk.start(on(desk, "x")[-1])
        follow(desk, "x", 2 * epoch + 2)
        actions = desk.tell(NodeLeft("x", epoch, crashed=True))
        assert not any(isinstance(action, DropPass | CloseLease) for action in actions)
        desk.tell(NodeJoined(node("x", SLOW, epoch=epoch + 1)))
    assert desk.refused() == {"a": "condemned"}


def test_only_what_ran_is_suspect_after_a_crash() -> None:
    desk = Desk(node("x", limits=Limits(pass_parts=1)))
    for name in ("a", "b"):
        desk.submit(score(name, "batch"))
    desk.start(desk.passes()[0])
    while len(desk.passes()) < 2:
        desk.tell(Timer(), desk.router.next_deadline())
    desk.tell(NodeLeft("x", 0, crashed=True))
    jobs = desk.router.state.jobs
    assert [jobs[name].shards[0].solo for name in ("a", "b")] == [True, False]


def test_what_a_silent_node_ran_is_suspect_when_it_dies_even_if_given_to_others() -> None:
    desk = Desk(node("x"))
    desk.submit(score("a", "batch"))
    desk.start(desk.passes()[0])
    silent(desk)
    assert desk.router.state.jobs["a"].shards[0].queued
    desk.tell(NodeLeft("x", 0, crashed=True))
    assert desk.router.state.jobs["a"].shards[0].solo


def test_half_a_view_reported_by_its_key_is_no_cached_view() -> None:
    desk = Desk(node("x", SLOW), node("y", SLOW))
    desk.submit(score("a", "batch", view=15_000, view_key="k"))
    (first, *_) = on(desk, "x") or on(desk, "y")
    half = first.parts[0].view_to
    assert half < 15_000
    desk.finish(first, gained=(("k", half),))
    holder = desk.router.state.nodes[first.node_id]
    assert "k" not in holder.keys
    assert "k" not in desk.router.state.models["m"].holders
    desk.submit(score("b", "standard", view=15_000, view_key="k"))
    for work in desk.passes():
        for part in work.parts:
            assert part.request_id != "b" or part.view_from == 0 or part.scan > 0 or part.view_from < 15_000


def test_a_node_that_joins_with_half_a_view_has_to_scan_it() -> None:
    desk = Desk(node(keys=(("k", 100),)))
    desk.submit(score("a", view=2000, view_key="k"))
    assert desk.passes()[0].parts[0].view_from == 0


def test_a_stream_that_fails_before_its_prompt_is_in_is_started_again() -> None:
    desk = Desk(node("n", SLOW, round_cost=ROUND, limits=Limits(slots=2)))
    desk.submit(generate("g", "standard", prompt=20_000))
    first = desk.passes()[0]
    desk.start(first)
    desk.tell(LeaseEnded("n", 0, "g", 0, failed=True))
    for count in range(30):
        works = on(desk, "n")
        if any(isinstance(action, OpenLease) for action in desk.log):
            break
        desk.finish(works[count])
    assert any(isinstance(action, OpenLease) for action in desk.log)
    assert not desk.refused()


def test_a_prompt_on_a_silent_node_is_given_to_another_and_the_slot_let_go() -> None:
    desk = Desk(node("x", round_cost=ROUND, limits=Limits(slots=2)))
    desk.submit(generate("g", "batch"))
    (work,) = desk.passes()
    silent(desk)
    assert CloseLease("x", "g") in desk.log
    desk.tell(NodeJoined(node("y", round_cost=ROUND, limits=Limits(slots=2))))
    assert [part.request_id for again in on(desk, "y") for part in again.parts] == ["g"]
    desk.finish(work)
    desk.tell(LeaseEnded("x", 0, "g", 100))
    assert not desk.answered()
    desk.finish(on(desk, "y")[0])
    desk.tell(LeaseEnded("y", 0, "g", 100, attempt=1))
    assert desk.answered() == ["g"]


def test_a_failed_prompt_frees_its_slot_on_the_node() -> None:
    desk = Desk(node("n", round_cost=ROUND, limits=Limits(slots=2)))
    desk.submit(generate("g"))
    (work,) = desk.passes()
    actions = desk.tell(WorkFailed("n", 0, work.id))
    assert actions[0] == CloseLease("n", "g")
    assert any(isinstance(action, OpenLease) for action in actions[1:])


def test_prompts_that_wait_for_a_slot_do_not_hold_up_scores_behind_them() -> None:
    desk = Desk(node("n", round_cost=ROUND, limits=Limits(slots=2)))
    for index in range(200):
        desk.submit(generate(f"g{index}", "batch"))
    count = 0
    while count < len(desk.passes()):
        desk.finish(desk.passes()[count])
        count += 1
    actions = desk.submit(score("s", "batch"))
    assert [part.request_id for work in desk.passes(actions) for part in work.parts] == ["s"]


def test_a_neighbour_s_slowing_is_not_learnt_as_the_node_s_own_cost() -> None:
    desk = Desk(*(node(name, device_key="gpu", busy_neighbour=2.0) for name in ("a", "b")))
    for index in range(40):
        desk.submit(score(f"x{index}", view=1000 + 50 * index))
        desk.submit(score(f"y{index}", view=1000 + 50 * index))
        for work in [w for w in desk.passes() if w.id in desk.router.state.passes]:
            held = desk.router.state.passes[work.id][1]
            desk.finish(work, at=desk.now + 0.05, measured_s=FAST.seconds(held.shape[0], held.shape[1]) * held.factor)
    for state in desk.router.state.nodes.values():
        assert state.fit.cost.seconds(2000, 512) == pytest.approx(FAST.seconds(2000, 512), rel=0.05)


def test_a_failure_and_one_death_condemn_nobody() -> None:
    desk = Desk(node("x"))
    desk.submit(score("a", "batch"))
    desk.tell(WorkFailed("x", 0, desk.passes()[0].id))
    desk.start(desk.passes()[1])
    desk.tell(NodeLeft("x", 0, crashed=True))
    assert not desk.refused()
    desk.tell(NodeJoined(node("x", epoch=1)))
    desk.start(desk.passes()[2])
    desk.tell(NodeLeft("x", 1, crashed=True))
    assert desk.refused() == {"a": "condemned"}


def test_a_suspect_in_chunks_stays_alone_beside_other_chunked_work() -> None:
    desk = Desk(node("x", SLOW))
    desk.submit(score("a", "batch", view=15_000))
    desk.start(desk.passes()[0])
    follow(desk, "x", 2)
    desk.tell(NodeLeft("x", 0, crashed=True))
    desk.tell(NodeJoined(node("x", SLOW, epoch=1)))
    assert desk.router.state.jobs["a"].shards[0].solo
    other = score("b", "batch", view=15_000)
    desk.submit(other)
    state = desk.router.state
    shard = state.jobs["b"].shards[0]
    state.dequeue(shard)
    shard.pin, shard.scanned = "x", 14_900  # nearly done there: little enough to fit beside anything
    state.enqueue(shard)
    for count in range(2, 12):
        work = on(desk, "x")[count] if count < len(on(desk, "x")) else None
        if work is None:
            break
        assert {part.request_id for part in work.parts} in ({"a"}, {"b"})
        desk.finish(work)


def test_a_draining_node_ends_its_chunks_and_takes_nothing_new() -> None:
    desk = Desk(node("x", SLOW))
    desk.submit(score("a", "batch", view=15_000))
    desk.submit(score("b", "batch", view=100))
    desk.tell(NodeDraining("x"))
    count = 0
    while count < len(on(desk, "x")):
        desk.finish(on(desk, "x")[count])
        count += 1
    assert desk.answered() == ["a"]
    assert {part.request_id for work in desk.passes() for part in work.parts} == {"a"}


def test_admission_behind_a_silent_fleet_leaves_the_line_s_slack_a_number() -> None:
    desk = Desk(node("x"))
    desk.submit(score("a", "batch"))
    for _ in range(20):
        if desk.router.state.nodes["x"].late:
            break
        desk.tell(Timer(), max(desk.now, desk.router.next_deadline() or 0.0))
    assert desk.router.state.nodes["x"].late
    for index in range(3):
        desk.submit(score(f"b{index}", "batch"))
    queue = desk.router.state.models["m"].queues[0]
    assert queue.slack_after((0.0, 0)) == inf
    early = Request(id="c", model="m", slo="batch", view_tokens=10, branches=(1,), deadline_s=None)
    desk.submit(early)
    assert not isnan(queue.slack_after((0.0, 0)))


def test_a_pass_has_no_more_parts_than_the_node_takes() -> None:
    desk = Desk(node("x", limits=Limits(pass_parts=3)))
    for index in range(30):
        desk.submit(score(f"r{index}", "batch", view=10, branches=1, rows=1))
    count = 0
    while count < len(desk.passes()):
        desk.finish(desk.passes()[count])
        count += 1
    assert max(len(work.parts) for work in desk.passes()) == 3
    assert len(desk.answered()) == 30


def test_one_new_stream_a_pass_and_never_more_than_the_slots() -> None:
    desk = Desk(node("x", round_cost=ROUND, limits=Limits(slots=2)))
    desk.submit(score("first", "batch"))
    for index in range(6):
        desk.submit(generate(f"g{index}", "batch", prompt=10))
    count = 0
    while count < len(desk.passes()):
        desk.finish(desk.passes()[count])
        count += 1
        assert len(desk.router.state.nodes["x"].leases) <= 2
    assert all(sum(part.opens_lease for part in work.parts) <= 1 for work in desk.passes())


def test_late_work_is_nobody_s_fault_however_often() -> None:
    desk = Desk(node("x"))
    desk.submit(score("a", "batch"))
    for count in range(5):
        desk.tell(WorkFailed("x", 0, desk.passes()[count].id, late=True))
    assert not desk.refused()
    desk.finish(desk.passes()[-1])
    assert desk.answered() == ["a"]


def test_a_node_that_came_back_in_time_keeps_the_waiting() -> None:
    desk = Desk(node("x"))
    desk.submit(score("a", "batch"))
    desk.tell(NodeLeft("x", 0, crashed=False))
    desk.tell(NodeJoined(node("y")), desk.now + 1.0)
    desk.tell(NodeDraining("x"))
    desk.start(on(desk, "y")[0])
    for index in range(200):
        desk.submit(score(f"b{index}", "batch"))
    desk.tell(Timer(), desk.now + 30.0)
    assert not desk.refused()


def test_what_only_a_lost_node_could_run_is_told_so() -> None:
    desk = Desk(node("wide"), node("narrow", limits=Limits(view_tokens=1000)))
    for index in range(4):
        desk.submit(score(f"r{index}", "batch", view=5000))
        desk.submit(score(f"s{index}", "batch", view=500))
    desk.tell(NodeLeft("wide", 0, crashed=False))
    desk.tell(Timer(), desk.now + 29.0)
    assert not desk.refused()
    desk.tell(Timer(), desk.now + 2.0)
    assert desk.refused() == {f"r{index}": "no_node" for index in range(4)}


def test_shards_bound_to_a_numerics_class_that_is_gone_are_told_so() -> None:
    desk = Desk(node("a"), node("c", numerics="fp8"))
    desk.submit(score("r", "batch", view=500, branches=4000))
    first = desk.passes()[0]
    assert len(desk.router.state.jobs["r"].shards) > 1
    desk.finish(first)
    desk.tell(NodeLeft(first.node_id, 0, crashed=False))
    for _ in range(200):
        when = desk.router.next_deadline()
        if when is None or "r" in desk.refused():
            break
        desk.tell(Timer(), max(when, desk.now))
    assert desk.refused() == {"r": "no_node"}


def test_a_branch_longer_than_a_node_s_pass_is_never_begun_there() -> None:
    desk = Desk(node("large"))
    for index in range(6):
        desk.submit(score(f"r{index}", "batch", view=30_000, branches=1, rows=2000))
    desk.tell(NodeJoined(node("small", limits=Limits(pass_tokens=1000))))
    count = 0
    while count < len(desk.passes()):
        desk.finish(desk.passes()[count])
        count += 1
    assert not on(desk, "small")
    assert len(desk.answered()) == 6


def test_an_urgent_request_that_jumps_ahead_uses_up_the_slack_of_those_behind() -> None:
    desk = Desk(node("x"))
    for index in range(40):
        desk.submit(score(f"s{index}", "standard", view=16_000, branches=1))
    queue = desk.router.state.models["m"].queues[1]
    before = queue.slack_after((0.0, 0))
    desk.submit(score("j", "standard", view=3_000, branches=1, deadline_s=9.0))
    job = desk.router.state.jobs["j"]
    assert job.shards[0].slack_s > before, "its own slack is not what shrinks the line's"
    assert queue.slack_after((0.0, 0)) < before - 0.02
    for index in range(200):
        desk.submit(score(f"j{index}", "standard", view=3_000, branches=1, deadline_s=9.0))
        assert queue.slack_after((0.0, 0)) > -1e-6, "nobody admitted before is made late"


def test_no_retry_where_the_deadline_comes_before_it() -> None:
    desk = Desk(node("x"))
    index = 0
    while not desk.refused():
        desk.submit(score(f"i{index}", view=9000))
        index += 1
    (refusal,) = desk.submit(score("open", view=9000))
    assert refusal.error.retry_after_s is not None
    (refusal,) = desk.submit(score("bound", view=9000, deadline_s=0.9))
    assert refusal.error.retry_after_s is None


def test_an_echo_taken_for_one_shard_takes_it_out_of_the_queue() -> None:
    desk = Desk(node("x"))
    desk.submit(score("r", "batch", view=500, branches=4000))
    work = desk.passes()[0]
    silent(desk)
    model = desk.router.state.models["m"]
    before = model.queued()
    desk.finish(work)
    job = desk.router.state.jobs["r"]
    done = [shard for shard in job.shards if shard.done]
    assert done
    assert not any(shard.queued for shard in done)
    assert model.queued() < before


def test_streams_reserve_their_whole_context() -> None:
    desk = Desk(node("x", round_cost=ROUND, limits=Limits(slots=4, context_tokens=2500)))
    for index in range(3):
        desk.submit(generate(f"g{index}", "batch", prompt=1000, tokens=100))
    count = 0
    while count < len(desk.passes()):
        desk.finish(desk.passes()[count])
        count += 1
    assert len(desk.router.state.nodes["x"].leases) == 2
