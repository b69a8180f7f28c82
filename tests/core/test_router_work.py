"""Shards, chunks, leases, crashes and the moments of dispatch, one decision at a time."""

from itertools import pairwise

import pytest

from mainspring.core.actions import Answer, OpenLease, Refuse, SendPass
from mainspring.core.events import (
    LeaseEnded,
    LeaseProgress,
    LeaseStarted,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    Timer,
    WorkFailed,
    WorkStarted,
)
from mainspring.core.nouns import Limits, SloClass
from mainspring.core.sharding import split
from router_rig import FAST, ROUND, SLOW, Desk, generate, node, play, score

SLOTS = Limits(slots=2, context_tokens=20_000)


def test_split_is_contiguous_near_equal_and_bounded() -> None:
    pieces = split((64,) * 100, 640.0)
    assert pieces[0][0] == 0
    assert pieces[-1][1] == 100
    assert all(a[1] == b[0] for a, b in pairwise(pieces))
    assert {hi - lo for lo, hi in pieces} == {10}
    assert split((64,) * 3, float("inf")) == [(0, 3)]
    assert len(split((1,) * 1000, 1.0)) == 64


def test_shards_join_in_branch_order_whatever_comes_first() -> None:
    desk = Desk(node("a"), node("b"))
    desk.submit(score("wide", "standard", view=500, branches=400, view_key="v"))
    seen = []
    while desk.passes()[len(seen) :]:
        work = desk.passes()[len(seen)]
        seen.append(work)
        desk.finish(work, gained=(("v", 500),))
    assert desk.answered() == ["wide"]
    (answer,) = [action for action in desk.log if isinstance(action, Answer)]
    by_id = {work.id: work for work in seen}
    spans = [(by_id[p].parts[i].branch_from, by_id[p].parts[i].branch_to) for p, i in answer.parts]
    assert spans[0][0] == 0
    assert spans[-1][1] == 400
    assert all(a[1] == b[0] for a, b in pairwise(spans))
    assert len({work.node_id for work in seen}) == 2


def test_shards_of_a_request_stay_within_one_numerics_class() -> None:
    desk = Desk(node("a", numerics="bf16"), node("b", numerics="fp8"), node("c", numerics="bf16"))
    desk.submit(score("wide", "standard", view=500, branches=600, view_key="v"))
    done = 0
    while desk.passes()[done:]:
        desk.finish(desk.passes()[done])
        done += 1
    assert desk.answered() == ["wide"]
    kinds = {desk.router.state.nodes[work.node_id].spec.numerics for work in desk.passes()}
    assert len(kinds) == 1


def test_one_failed_shard_is_retried_alone() -> None:
    desk = Desk(node("a"), node("b"))
    desk.submit(score("wide", "standard", view=500, branches=400, view_key="v"))
    first, second = desk.passes()[:2]
    actions = desk.tell(WorkFailed(first.node_id, 0, first.id))
    (again,) = [work for work in desk.passes(actions) if work.node_id == first.node_id]
    assert [(p.shard, p.branch_from) for p in again.parts] == [(p.shard, p.branch_from) for p in first.parts]
    assert second.parts[0].shard != first.parts[0].shard


def test_a_long_view_runs_in_chunks_that_follow_each_other() -> None:
    desk = Desk(node(cost=SLOW))
    desk.submit(score("urgent"))
    desk.finish(desk.passes()[0])
    desk.submit(score("long", "batch", view=16_000, branches=2))
    begun = len(desk.passes()) - 1
    done = begun
    while desk.passes()[done:]:
        work = desk.passes()[done]
        desk.start(work)
        if (when := desk.router.next_deadline()) is not None and when < desk.now + work.predicted_s:
            desk.tell(Timer(), when)
        desk.finish(work, desk.now + 0.05)
        done += 1
    chunks = [part for work in desk.passes()[begun:] for part in work.parts]
    assert len(chunks) >= 3
    assert chunks[0].view_from == 0
    assert all(a.view_to == b.view_from for a, b in pairwise(chunks))
    assert chunks[-1].branch_to == 2
    assert desk.answered() == ["urgent", "long"]


def test_a_busy_node_gets_its_next_work_late_but_never_too_late() -> None:
    desk = Desk(node(network_s=0.01))
    desk.submit(score("a", "batch"), 1.0)
    first = desk.passes()[0]
    desk.start(first, 1.01)
    desk.submit(score("b", "batch"), 1.012)
    assert len(desk.passes()) == 1, "too early: something urgent may still come"
    when = desk.router.next_deadline()
    end = 1.01 + first.predicted_s
    assert when is not None
    assert end - 0.015 <= when <= end - 0.01, "the network time before it would run dry"
    desk.submit(score("u"), when - 0.001)
    desk.tell(Timer(), when)
    assert desk.passes()[1].parts[0].request_id == "u"


def test_a_slow_idle_node_takes_only_what_finishes_no_sooner_elsewhere() -> None:
    desk = Desk(node("fast"), node("slow", SLOW))
    desk.submit(score("first", "batch", view=8000))
    desk.submit(score("second", "batch", view=8000))
    assert {work.node_id for work in desk.passes()} == {"fast"}, "0.8 s there or 0.2 s behind the first"
    for serial in range(30):
        desk.submit(score(f"more{serial}", "batch", view=8000))
    assert {work.node_id for work in desk.passes()} == {"fast", "slow"}, "now the line is longer than that"


def test_a_late_node_attracts_nothing_and_its_work_goes_elsewhere() -> None:
    desk = Desk(node("a"), node("b"))
    desk.submit(score("r", "standard"), 1.0)
    stuck = desk.passes()[0]
    other = "b" if stuck.node_id == "a" else "a"
    desk.start(stuck, 1.001)
    while not any(work.node_id == other for work in desk.passes()):
        when = desk.router.next_deadline()
        assert when is not None
        desk.tell(Timer(), when)
    assert desk.now < 3.0
    assert desk.router.state.nodes[stuck.node_id].late
    second = next(work for work in desk.passes() if work.node_id == other)
    desk.finish(stuck, desk.now + 0.001, measured_s=2.0)
    assert desk.answered() == ["r"], "the first valid result wins"
    assert not desk.router.state.nodes[stuck.node_id].late
    desk.finish(second)
    assert desk.answered() == ["r"]
    assert desk.router.counters.wasted_passes == 1


def test_a_shard_whose_late_result_counts_is_with_nobody_else_any_more() -> None:
    desk = Desk(node("a"), node("b"))
    desk.submit(score("wide", "standard", view=500, branches=400, view_key="v"), 1.0)
    stuck = desk.passes()[0]
    desk.start(stuck, 1.001)
    shard = next(shard for shard in desk.router.state.jobs["wide"].shards if stuck.id in shard.flight)
    while stuck.id in shard.flight:
        other = next(
            (work for work in desk.passes() if work.id in desk.router.state.passes and work is not stuck), None
        )
        if other is not None and other.node_id != stuck.node_id:
            desk.finish(other)
            continue
        when = desk.router.next_deadline()
        assert when is not None
        desk.tell(Timer(), when)
    while not shard.flight:
        when = desk.router.next_deadline()
        assert when is not None
        desk.tell(Timer(), when)
    assert not shard.done
    desk.finish(stuck, desk.now + 0.001, measured_s=2.0)
    assert shard.done
    assert not shard.flight


def test_only_a_solitary_second_death_condemns() -> None:
    desk = Desk(node("a"))
    for name in ("good", "bad"):
        desk.submit(score(name, "batch", view=500, branches=1))
    first = desk.passes()[0]
    assert [part.request_id for part in first.parts] == ["good"]
    desk.finish(first)
    for epoch in (0, 1):
        (work,) = desk.passes()[-1:]
        assert [part.request_id for part in work.parts] == ["bad"]
        desk.tell(WorkStarted("a", epoch, work.id))
        desk.tell(NodeLeft("a", epoch, crashed=True))
        desk.tell(NodeJoined(node("a", epoch=epoch + 1)))
    assert desk.refused() == {"bad": "condemned"}


def test_company_in_a_crash_is_cleared_by_running_alone() -> None:
    desk = Desk(node("a"))
    desk.submit(score("warm", "batch"))
    for serial in range(4):
        desk.submit(score(f"r{serial}", "batch", view=500, branches=1))
    desk.finish(desk.passes()[0])
    assert len(desk.passes()[1].parts) == 4
    desk.start(desk.passes()[1])
    desk.tell(NodeLeft("a", crashed=True))
    desk.tell(NodeJoined(node("a", epoch=1)))
    done = 2
    while desk.passes()[done:]:
        work = desk.passes()[done]
        assert len(work.parts) == 1, "solitary"
        desk.finish(work)
        done += 1
    assert len(desk.answered()) == 5


def test_draining_finishes_what_it_holds_and_gets_nothing_new() -> None:
    desk = Desk(node("a"))
    desk.submit(score("a", "batch"))
    desk.tell(NodeDraining("a"))
    (refusal,) = desk.submit(score("b", "batch"))
    assert isinstance(refusal, Refuse)
    assert refusal.error.code == "no_node"
    desk.finish(desk.passes()[0])
    assert desk.answered() == ["a"]


def test_when_the_last_node_stays_away_the_waiting_are_told() -> None:
    desk = Desk(node("a"))
    for serial in range(3):
        desk.submit(score(f"r{serial}", "batch"))
    desk.tell(NodeLeft("a", crashed=False))
    while (when := desk.router.next_deadline()) is not None:
        desk.tell(Timer(), when)
    assert set(desk.refused().values()) == {"no_node"}
    assert len(desk.refused()) == 3


def test_a_lease_from_prompt_to_end() -> None:
    desk = Desk(node(limits=SLOTS, round_cost=ROUND))
    actions = desk.submit(generate("g", prompt=1000, tokens=50))
    assert [type(action) for action in actions[1:]] == [OpenLease, SendPass]
    desk.finish(desk.passes()[0])
    desk.tell(LeaseStarted("n", 0, "g"))
    desk.tell(LeaseProgress("n", 0, "g", 10))
    desk.tell(LeaseEnded("n", 0, "g", 50))
    assert desk.answered() == ["g"]
    assert not desk.router.state.nodes["n"].leases


def test_passes_are_capped_while_streams_live() -> None:
    desk = Desk(node(cost=SLOW, limits=SLOTS, round_cost=ROUND))
    desk.submit(generate("g", prompt=200, tokens=500))
    desk.finish(desk.passes()[0])
    desk.tell(LeaseStarted("n", 0, "g"))
    desk.submit(score("long", "batch", view=9000, branches=1))
    streamed = 0.1 * ROUND.tokens  # the interactive gap times the tokens of a round
    assert desk.passes()[-1].predicted_s <= streamed + 1e-9
    assert desk.passes()[-1].parts[0].view_to < 9000


def test_a_full_node_makes_generations_wait_for_a_slot() -> None:
    desk = Desk(node(limits=SLOTS, round_cost=ROUND))
    for serial in range(3):
        desk.submit(generate(f"g{serial}", "standard", prompt=500, tokens=20))
        for work in desk.passes():
            if work.id in desk.router.state.passes:
                desk.finish(work)
    assert len(desk.router.state.nodes["n"].leases) == 2
    desk.tell(LeaseEnded("n", 0, "g0", 20))
    assert "g2" in desk.router.state.nodes["n"].leases


def test_a_stream_lost_midway_is_told_one_not_begun_is_retried() -> None:
    desk = Desk(node("a", limits=SLOTS, round_cost=ROUND))
    for name in ("begun", "fresh"):
        desk.submit(generate(name, "standard", prompt=500, tokens=20))
    for work in desk.passes():
        desk.finish(work)
    for work in desk.passes()[1:]:
        desk.finish(work)
    desk.tell(LeaseStarted("a", 0, "begun"))
    desk.tell(NodeLeft("a", 0, crashed=True))
    actions = desk.tell(NodeJoined(node("a", epoch=1, limits=SLOTS, round_cost=ROUND)))
    assert desk.refused() == {"begun": "lease_lost"}
    assert [part.request_id for work in desk.passes(actions) for part in work.parts] == ["fresh"]


def test_cached_prefixes_shorten_a_prompt() -> None:
    desk = Desk(node("cold", limits=SLOTS, round_cost=ROUND),
                node("warm", limits=SLOTS, round_cost=ROUND, keys=(("turn1", 3000), ("turn2", 5000))))  # fmt: skip
    keys = (("turn1", 3000), ("turn2", 5000), ("turn3", 5900))
    desk.submit(generate("g", prompt=6000, prefix_keys=keys))
    (work,) = desk.passes()
    assert work.node_id == "warm"
    assert (work.parts[0].view_from, work.parts[0].prefix) == (5000, "turn2")


def test_the_largest_wait_is_bounded_at_95_percent_load() -> None:
    """Strict order of due times: a large request of a class waits for what came before it and for higher classes only.
    Bound used: the work before it in its class, stretched by what higher classes take, and one capped pass."""
    from mainspring.core.nouns import DEFAULT_CLASSES
    from mainspring.core.router import Router
    from mainspring.simulate.scenarios import MIXED, MIXED_S, fleet
    from mainspring.simulate.simulation import Simulation
    from mainspring.simulate.workload import poisson

    simulation = Simulation(Router(), fleet(2, 0, 1), poisson(MIXED, 0.95 * 2.0 / MIXED_S, 3), DEFAULT_CLASSES, 3)
    simulation.run(120.0)
    batch = [o for o in simulation.outcomes.values() if o.slo.name == "batch"]
    assert all(o.state == "answered" for o in batch)
    size = sorted(batch, key=lambda o: o.request.tokens)
    large, small = size[-len(size) // 10 :], size[: len(size) // 2]
    worst = max(o.latency_s for o in large)
    assert worst <= 30.0
    mean = [sum(o.latency_s for o in part) / len(part) for part in (large, small)]
    assert mean[0] <= 2.0 * mean[1] + 1.0, "large ones are not passed over"


@pytest.mark.parametrize("busy", [1.0, 1.6])
def test_nodes_on_one_device_slow_each_other(busy: float) -> None:
    specs = [node(name, device_key="gpu", busy_neighbour=busy) for name in ("a", "b")]
    desk = Desk(*specs)
    desk.submit(score("x", "batch", view=4000))
    desk.submit(score("y", "batch", view=4000))
    one, two = desk.passes()
    assert two.predicted_s == pytest.approx(one.predicted_s * busy, rel=1e-6)


def test_equal_traces_give_equal_logs() -> None:
    classes = (SloClass("interactive", 2, 4.0, 1.0), SloClass("batch", 0, 1.0, None))
    entries = [(1.0 + i * 0.01, score(f"r{i}", "batch" if i % 3 else "interactive")) for i in range(60)]
    logs = []
    for _ in range(2):
        outcomes, _ = play(entries, [node("a"), node("b", FAST)], classes=classes, noise=0.1, seed=5)
        logs.append([(name, o.state, o.done_s) for name, o in outcomes.items()])
    assert logs[0] == logs[1]
