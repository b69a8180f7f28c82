"""The thirteen faults seen in other routers, each pinned as a typed outcome."""

from math import ceil
from random import Random

from mainspring.core.actions import Answer, DropPass, Refuse, RejectNode, SendPass
from mainspring.core.events import Cancel, NodeJoined, NodeLeft, Submit, Timer, WorkFailed
from mainspring.core.nouns import DEFAULT_CLASSES, Limits
from mainspring.core.refusals import ContentionError, ExpiredError, NoNodeError, RefusedError
from mainspring.core.router import Router
from mainspring.errors import TooLargeError
from mainspring.simulate.simulation import NodePlan, Simulation
from mainspring.simulate.vnode import Truth
from mainspring.simulate.workload import Both, Shape, poisson
from router_rig import FAST, SLOW, Desk, node, play, score


def refusals(desk: Desk) -> list[Refuse]:
    return [action for action in desk.log if isinstance(action, Refuse)]


def test_fault_01_refusals_carry_a_retry_time_from_the_forecast() -> None:
    desk = Desk(node())
    for serial in range(60):
        desk.submit(score(f"r{serial}"))
    errors = [refusal.error for refusal in refusals(desk)]
    assert errors
    assert all(isinstance(error, ContentionError) for error in errors)
    times = [error.retry_after_s for error in errors if isinstance(error, ContentionError)]
    assert all(time is not None and 0.0 < time <= 60.0 and ceil(time) >= 1 for time in times)


def test_a_settled_request_is_no_ring() -> None:
    """Shards hold their job. What waited long would be kept until a collection of the oldest generation."""
    desk = Desk(node())
    for name in ("answered", "taken back"):
        desk.submit(score(name))
    jobs = list(desk.router.state.jobs.values())
    assert all(job.shards for job in jobs)
    desk.tell(Cancel("taken back"))
    for work in desk.passes():
        desk.finish(work)
    assert desk.answered() == ["answered"]
    assert not any(job.shards for job in jobs)


def test_a_refusal_holds_no_frames() -> None:
    """Those of whoever raised it hold the list of actions that it is in: one ring a refused request."""
    desk = Desk(node())
    desk.submit(score("late", deadline_s=1e-6))
    desk.submit(score("unknown", model="x"))
    desk.tell(NodeJoined(node(epoch=-1)))
    refusals = [action.error for action in desk.log if isinstance(action, Refuse | RejectNode)]
    assert len(refusals) == 3
    assert all(error.__traceback__ is None for error in refusals)


def test_fault_02_absence_is_told_from_contention() -> None:
    desk = Desk(node())
    desk.tell(NodeLeft("n", crashed=False))
    (refusal,) = desk.submit(score("r"))
    assert isinstance(refusal, Refuse)
    assert isinstance(refusal.error, NoNodeError)
    assert refusal.error.status == 503
    (refusal,) = desk.submit(score("s", model="other"))
    assert isinstance(refusal, Refuse)
    assert refusal.error.code == "unknown_model"


def test_fault_03_what_can_not_make_it_is_refused_on_the_timer() -> None:
    desk = Desk(node())
    for serial in range(20):
        desk.submit(score(f"r{serial}"))
    assert not desk.refused()
    while (when := desk.router.next_deadline()) is not None and when < 3.0:
        desk.tell(Timer(), max(when, desk.now))
    late = [refusal for refusal in refusals(desk) if isinstance(refusal.error, ExpiredError)]
    assert len(late) >= 18, "the node never spoke again: nothing was freed, all were told before their target"
    assert desk.router.counters.expired == len(late)


def test_fault_04_counters_are_conserved_over_a_long_soak() -> None:
    shape = Shape(name="i", slo="interactive", view_tokens=3000, view_spread=0.8, branches=(1, 40))
    bulk = Shape(name="b", slo="batch", view_tokens=6000, view_spread=0.8, branches=(1, 200))
    router = Router()
    plans = [NodePlan(node(f"n{i}"), Truth(FAST, noise=0.3)) for i in range(2)]
    load = Both(poisson([(1, shape)], 55.0, 1), poisson([(1, bulk)], 3.0, 2))
    simulation = Simulation(router, plans, load, DEFAULT_CLASSES, seed=1)
    simulation.run(60.0)
    c = router.counters
    assert c.refused + c.expired > 0
    assert c.submitted == c.answered + c.refused + c.expired + c.failed + c.cancelled
    state = router.state
    assert not state.jobs
    assert not state.passes
    model = state.models["m"]
    assert all(queue.total == (0, 0, 0, 0) for queue in model.queues.values())
    assert not model.waiting
    assert all(node.pinned_s == 0.0 and not node.held for node in state.nodes.values())


def test_fault_05_nobody_works_for_a_client_that_left() -> None:
    desk = Desk(node())
    desk.submit(score("running", "batch"))
    for serial in range(5):
        desk.submit(score(f"queued{serial}", "batch"))
    desk.tell(Cancel("queued3"))
    first = desk.passes()[0]
    desk.start(first)
    desk.tell(Cancel("running"))
    desk.finish(first)
    assert all(part.request_id != "queued3" for work in desk.passes() for part in work.parts)
    assert desk.router.counters.wasted_passes == 1
    assert desk.router.counters.wasted_s > 0.0
    assert "running" not in desk.answered()


def test_fault_05b_a_pass_nobody_waits_for_is_taken_back() -> None:
    desk = Desk(node())
    desk.submit(score("first", "batch"))
    desk.submit(score("second", "batch"))
    desk.start(desk.passes()[0])
    desk.tell(Timer(), desk.router.next_deadline())
    assert len(desk.passes()) == 2
    actions = desk.tell(Cancel("second"))
    assert actions == [DropPass("n", desk.passes()[1].id)]


def test_fault_06_admission_is_by_cost_whatever_the_form() -> None:
    """One request of 40 branches and 40 of one branch on the same view: both are judged by their work."""
    for size in (8, 40):
        one, many = Desk(node()), Desk(node())
        one.submit(score("one", view=4000, branches=size, view_key="v"))
        for serial in range(size):
            many.submit(score(f"m{serial}", view=4000, branches=1, view_key="v"))
        assert one.admitted() == ["one"]
        assert len(many.admitted()) == size


def test_fault_07_a_flood_ends_in_refusals_not_in_an_error() -> None:
    desk = Desk(node())
    for serial in range(5000):
        desk.submit(score(f"r{serial}"))
    assert len(desk.admitted()) + len(desk.refused()) == 5000
    assert set(desk.refused().values()) == {"contention"}


def test_fault_08_larger_than_any_pass_is_split_or_refused() -> None:
    tight = Limits(pass_tokens=4000, view_tokens=20_000)
    outcomes, simulation = play(
        [(1.0, score("long", "batch", view=18_000, branches=30, rows=400))], [node(limits=tight)]
    )
    assert outcomes["long"].state == "answered"
    assert simulation.policy.counters.passes >= 8  # type: ignore[attr-defined]
    desk = Desk(node(limits=tight))
    for request in (score("view", view=20_001), score("branch", "batch", view=100, rows=4001)):
        (refusal,) = desk.submit(request)
        assert isinstance(refusal, Refuse)
        assert isinstance(refusal.error, TooLargeError)
        assert refusal.error.limit < refusal.error.actual


def test_fault_09_retried_work_keeps_arrival_deadline_and_place() -> None:
    desk = Desk(node())
    desk.submit(score("old", "standard"))
    for serial in range(9):
        desk.submit(score(f"young{serial}", "standard"), desk.now + 0.001)
    first = desk.passes()[0]
    job = desk.router.state.jobs["old"]
    before = (job.arrival_s, job.due_s, job.shards[0].key)
    actions = desk.tell(WorkFailed("n", 0, first.id), desk.now + 0.01)
    assert (job.arrival_s, job.due_s, job.shards[0].key) == before
    (again,) = desk.passes(actions)
    assert [part.request_id for part in again.parts] == ["old"], "first in line, and alone"


def test_fault_10_low_priority_load_does_not_move_the_high_beyond_its_target() -> None:
    urgent = Shape(name="i", slo="interactive", view_tokens=1500, view_spread=0.4)
    bulk = Shape(name="b", slo="batch", view_tokens=9000, view_spread=0.6, branches=(8, 200))
    p99, p50 = {}, {}
    for name, load in (("alone", 0.0), ("beside", 6.0)):
        parts = [poisson([(1, urgent)], 20.0, 1)] + ([poisson([(1, bulk)], load, 2)] if load else [])
        plans = [NodePlan(node(f"n{i}"), Truth(FAST)) for i in range(2)]
        summary = Simulation(Router(), plans, Both(*parts), DEFAULT_CLASSES).run(60.0)
        assert summary.attained_by_class["interactive"] == 1.0
        assert summary.refused_by_class["interactive"] == 0
        p99[name], p50[name] = summary.p99_by_class["interactive"], summary.p50_by_class["interactive"]
    assert p99["beside"] <= 0.6, "one capped pass in the way, never two"


def test_fault_11_shares_follow_the_cost_curves() -> None:
    shape = Shape(name="b", slo="batch", view_tokens=5000, view_spread=0.5)
    plans = [NodePlan(node("fast"), Truth(FAST)), NodePlan(node("slow", SLOW), Truth(SLOW))]
    simulation = Simulation(Router(), plans, poisson([(1, shape)], 30.0, 1), DEFAULT_CLASSES)
    simulation.run(30.0)
    tokens: dict[str, int] = {"fast": 0, "slow": 0}
    for name in tokens:
        tokens[name] = len(simulation.nodes[name].trace)
    busy = {name: virtual.busy_s for name, virtual in simulation.nodes.items()}
    assert 0.9 < busy["slow"] / busy["fast"] < 1.1, "both work all the time, so each does what it can"


def test_fault_12_affinity_ends_where_waiting_costs_more_than_scanning() -> None:
    entries = [
        (1.0 + i * 0.002, score(f"r{i}", "standard", view=4000, branches=20, view_key="hot")) for i in range(400)
    ]
    outcomes, simulation = play(entries, [node(f"n{i}") for i in range(4)])
    busy = sorted(virtual.busy_s for virtual in simulation.nodes.values())
    assert all(o.state == "answered" for o in outcomes.values())
    assert busy[0] > 0.5 * busy[-1], "no node idles while another drowns in one view"


def test_fault_13_a_late_joiner_gets_queued_work_at_once() -> None:
    desk = Desk(node("old"))
    for serial in range(200):
        desk.submit(score(f"r{serial}", "batch"))
    actions = desk.tell(NodeJoined(node("new")))
    assert [type(action) for action in actions] == [SendPass]
    assert desk.passes(actions)[0].node_id == "new"
    assert len(desk.passes(actions)[0].parts) > 5


def test_every_refusal_is_typed_and_every_answer_single() -> None:
    rng = Random(4)
    router = Router()
    router.handle(NodeJoined(node()), 0.0)
    seen: set[str] = set()
    for serial in range(300):
        request = score(
            f"r{serial}", rng.choice(["interactive", "standard", "batch", "nonsense"]), view=rng.randint(-5, 9000)
        )
        for action in router.handle(Submit(request), serial * 0.001):
            if isinstance(action, Refuse | Answer):
                assert action.request_id not in seen
                seen.add(action.request_id)
                if isinstance(action, Refuse) and isinstance(action.error, RefusedError):
                    assert action.error.status in (429, 503)
