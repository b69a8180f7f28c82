"""Filling one pass, a draft at a time."""

import pytest

from mainspring.core.batching import JOIN, MISFITS, Draft, compose
from mainspring.core.jobs import Job
from mainspring.core.nodestate import NodeState
from mainspring.core.nouns import Limits, Request
from mainspring.core.router import Router
from router_rig import FAST, SLOW, Desk, node, score


def plain(request: Request, now: float = 0.0) -> Job:
    job = Job(request, Router().state.classes[request.slo], now)
    job.cut([(0, len(request.branches))], 1)
    return job


def parts(desk: Desk) -> list[list[str]]:
    return [[part.request_id for part in work.parts] for work in desk.passes()]


@pytest.mark.parametrize("busy_s", [0.0, 0.4])
def test_company_must_keep_every_due_time_at_the_tail_of_the_error(busy_s: float) -> None:
    """The spread of this pass and of the one before it: 1.6 times the p99 deviation of either."""
    holder = NodeState(node("n"))
    holder.caps, holder.above = {0: 9.0, 1: 9.0, 2: 9.0}, {0: 9.0, 1: 9.0, 2: 9.0}
    holder.fit.late_ratio = 1.25
    ends = holder.net_s + FAST.c0 + 2.0 * (FAST.seconds(4000, 512) - FAST.c0) + holder.net_s
    spread = 0.4 * ((ends - 2.0 * holder.net_s) ** 2 + busy_s**2) ** 0.5
    for slack, joins in ((0.95, False), (1.05, True)):
        draft = Draft(holder, 0.0)
        draft.busy_s = busy_s
        assert draft.add(plain(score("a", "batch", 4000, deadline_s=50.0)).shards[0])
        late = score("b", "batch", 4000, deadline_s=ends + slack * spread)
        assert draft.add(plain(late).shards[0]) is joins


@pytest.mark.parametrize("misfits", [MISFITS - 1, MISFITS])
def test_a_draft_is_full_after_so_many_in_a_row_that_do_not_fit(misfits: int) -> None:
    desk = Desk(node("n", limits=Limits(pass_tokens=3000)))
    desk.submit(score("running", "batch", 2000, 1))
    desk.submit(score("head", "batch", 2000, 1))
    for index in range(misfits):
        desk.submit(score(f"big{index}", "batch", 2000, 1))
    desk.submit(score("small", "batch", 100, 1))
    desk.finish(desk.passes()[0])
    assert parts(desk)[1] == (["head", "small"] if misfits < MISFITS else ["head"])


def test_those_that_share_a_view_do_not_bring_lower_classes_past_higher_ones() -> None:
    """Room for two: the second of the class goes before the low one that waits for the same view."""
    desk = Desk(node("n", SLOW, limits=Limits(pass_parts=2)))
    desk.submit(score("running", "batch", 100, 1))
    desk.submit(score("low", "batch", 500, 1, view_key="v", rows=1))
    desk.submit(score("first", "standard", 500, 1, view_key="v", rows=1))
    desk.submit(score("second", "standard", 500, 1, rows=1))
    desk.finish(desk.passes()[0])
    assert parts(desk)[1] == ["first", "second"]


def test_low_priority_adds_four_fixed_costs_in_all_however_views_are_shared() -> None:
    """A high one that joins through a low one's view does not make room for more low ones."""
    holder = NodeState(node("n"))
    holder.caps, holder.above = {0: 9.0, 1: 9.0, 2: 9.0}, {0: 9.0, 1: 9.0, 2: 9.0}
    draft = Draft(holder, 0.0)
    view = int(0.9 * JOIN * FAST.c0 / FAST.c1)
    high = [score("h0", "standard", 3000, 1), score("h1", "standard", view, 1, view_key="v")]
    low = [score("l0", "batch", view, 1, rows=1, view_key="v"), score("l1", "batch", view, 1, rows=1)]
    assert draft.add(plain(high[0]).shards[0])
    assert draft.add(plain(low[0]).shards[0])
    assert draft.add(plain(high[1]).shards[0])
    assert not draft.add(plain(low[1]).shards[0])
    alone = FAST.c0 + FAST.c1 * 3000 + FAST.c2 * 128
    assert draft.seconds <= alone + JOIN * FAST.c0


def test_a_sharer_of_a_higher_class_than_the_pass_waits_for_its_own() -> None:
    """Deep in its own line, it is not drawn into a pass of a lower class."""
    desk = Desk(node("n"))
    model, holder = desk.router.state.models["m"], desk.router.state.nodes["n"]
    desk.submit(score("running", "batch", 100, 1))
    holder.draining = True  # nothing leaves meanwhile
    state = desk.router.state
    low, high = (
        plain(score("low", "batch", 500, 1, view_key="v")),
        plain(score("high", "standard", 500, 1, view_key="v")),
    )
    for job in (low, high):
        state.jobs[job.request.id] = job
        state.enqueue(job.shards[0])
    holder.draining = False
    model.queues[1].remove(high.shards[0])
    high.shards[0].queued = True
    draft = compose(model, holder, desk.now)
    assert draft is not None
    assert [shard.job.request.id for shard in draft.members] == ["low"]


def test_a_request_is_not_begun_where_its_chunks_would_end_too_late() -> None:
    """One fixed cost for all would let the slow node begin; with one for each chunk it ends after its deadline."""
    slow = node("n", SLOW, limits=Limits(pass_tokens=1000))
    own = SLOW.seconds(9000, 64)
    for spare, begun in ((0.02, False), (0.5, True)):
        holder = NodeState(slow)
        holder.caps, holder.above = dict.fromkeys(range(3), 0.11), dict.fromkeys(range(3), 0.11)
        draft = Draft(holder, 0.0)
        assert draft.add(plain(score("a", "batch", 9000, 1, deadline_s=own + 0.002 + spare)).shards[0]) is begun


def test_a_request_begun_goes_on_while_it_can() -> None:
    """The same due time turns away whoever has not begun yet."""
    slow = node("n", SLOW, limits=Limits(pass_tokens=1000))
    deadline = SLOW.seconds(9000, 64) + 0.022
    for pin in ("", "n"):
        holder = NodeState(slow)
        holder.caps, holder.above = dict.fromkeys(range(3), 0.11), dict.fromkeys(range(3), 0.11)
        (shard,) = plain(score("a", "batch", 9000, 1, deadline_s=deadline)).shards
        shard.pin = pin or None
        assert Draft(holder, 0.0).add(shard) is bool(pin)


def test_what_others_of_the_highest_class_add_makes_no_less_room_for_lower_ones() -> None:
    holder = NodeState(node("n"))
    holder.caps, holder.above = dict.fromkeys(range(3), 9.0), dict.fromkeys(range(3), 9.0)
    draft = Draft(holder, 0.0)
    for index in range(2):
        assert draft.add(plain(score(f"h{index}", "standard", 3000, 1)).shards[0])
    assert draft.add(plain(score("low", "batch", 1000, 1)).shards[0])
