"""Each baseline reproduces a qualitative result of its publication before it is compared with."""

import pytest

from mainspring.core.cost import Cost
from mainspring.core.events import NodeJoined, Submit, WorkDone
from mainspring.core.nouns import Limits, SloClass
from mainspring.simulate.compare import POLICIES, play
from mainspring.simulate.policies.base import Waiting
from mainspring.simulate.policies.clockwork import Clockwork
from mainspring.simulate.policies.deferred import Deferred
from mainspring.simulate.record import Summary
from mainspring.simulate.scenarios import SCENARIOS, images, plan
from mainspring.simulate.simulation import NodePlan, Simulation, Workload
from mainspring.simulate.workload import ClosedLoop, Shape, poisson
from router_rig import score

IMAGE = Shape(name="p", slo="image", view_tokens=1, branches=(1, 1), rows=1)


def run(policy: str, plans: list[NodePlan], load: Workload, classes: tuple[SloClass, ...], seconds: float) -> Summary:
    return Simulation(POLICIES[policy](classes), plans, load, classes, 1).run(seconds)


def test_clockwork_keeps_tight_targets_where_eager_fifo_keeps_none() -> None:
    """Figure 5: at a target of 25 ms under closed-loop load Clockwork answers in time, load-oblivious systems don't."""
    classes = (SloClass("image", 1, 1.0, 0.025),)
    load = [ClosedLoop([(32, IMAGE)], 1, think_s=0.001, backoff_s=0.01) for _ in range(2)]
    clockwork = run("clockwork", images(1, 1), load[0], classes, 2.0)
    fifo = run("round-robin", images(1, 1), load[1], classes, 2.0)
    assert clockwork.in_time >= 0.99 * clockwork.answered
    assert clockwork.goodput > 5.0 * fifo.goodput


def test_clockwork_grows_batches_with_the_target() -> None:
    """Figure 6: with a looser target the same device answers more, until the largest batch."""
    answered = []
    for target in (0.005, 0.01, 0.05):
        classes = (SloClass("image", 1, 1.0, target),)
        answered.append(run("clockwork", images(1, 1), poisson([(1, IMAGE)], 1500.0, 1), classes, 2.0).in_time)
    assert answered[0] < answered[1] < answered[2]


def test_deferred_dispatch_beats_eager_where_fixed_costs_weigh() -> None:
    """Symphony, figure 1: a later, fuller batch answers more of a load near capacity than eager ones."""
    cost = Cost(0.005, 0.0, 0.0005)
    limits = Limits(pass_parts=64)
    classes = (SloClass("image", 1, 1.0, 0.03),)
    goodput = {}
    for policy in ("deferred", "clockwork"):
        plans = [plan(f"g{i}", cost, i, 0.0, limits=limits, network_s=0.0002, anchors=()) for i in range(4)]
        goodput[policy] = run(policy, plans, poisson([(1, IMAGE)], 4000.0, 1), classes, 2.0).goodput
    assert goodput["deferred"] > goodput["clockwork"]


def test_deferred_dispatch_uses_few_devices() -> None:
    classes = (SloClass("image", 1, 1.0, 0.05),)
    plans = images(4, 1)
    simulation = Simulation(POLICIES["deferred"](classes), plans, poisson([(1, IMAGE)], 300.0, 1), classes, 1)
    simulation.run(2.0)
    busy = sorted((node.busy_s for node in simulation.nodes.values()), reverse=True)
    assert busy[0] > 0.6 * sum(busy), "few full, not all half-full"


def test_what_was_published_sees_batch_sizes_and_neither_tokens_nor_caches() -> None:
    """Clockwork: the p99 of the last ten of its application, size and worker. Symphony: a line in the batch size."""
    classes = (SloClass("standard", 1, 1.0, 10.0),)
    spec = plan("n", Cost(0.004, 1e-5, 2e-5), 1, keys=(("hot", 9000),)).spec
    name = ("m", "standard")
    clockwork, deferred = Clockwork(classes), Deferred(classes)
    for policy in (clockwork, deferred):
        policy.handle(NodeJoined(spec), 0.0)
        worker = policy.workers["n"]
        for index, (view, key) in enumerate(((1000, ""), (3000, ""), (9000, "hot"))):
            policy.handle(Submit(score(f"r{index}", "standard", view=view, view_key=key)), 0.0)
        small, hot = (Waiting(score("s", "standard", view=v, view_key=k), classes[0], 0.0, 9)
                      for v, k in ((1000, ""), (9000, "hot")))  # fmt: skip
        assert policy.predict(worker, [small]) == policy.predict(worker, [hot])
        assert worker.seconds([hot]) < worker.seconds([small]), "the informed ones know better"
        steps = [policy.profile(worker, name, size + 1) - policy.profile(worker, name, size) for size in (1, 2, 7)]
        assert steps == pytest.approx([steps[0]] * 3)
    worker, item = clockwork.workers["n"], Waiting(score("x", "standard"), classes[0], 0.0, 10)
    for measured in [9.0] + [0.1 + 0.01 * step for step in range(10)]:
        clockwork.measured(worker, WorkDone("n", 0, 1, measured), [item])
    assert clockwork.estimate(worker, name, 1) == pytest.approx(0.19), "the eleventh is forgotten"
    assert clockwork.estimate(worker, name, 2) == clockwork.profile(worker, name, 2), "each size for itself"


def test_our_costs_make_the_published_schedulers_better_where_sizes_differ() -> None:
    """The ablation, on mixed hardware: a profile by batch size cannot tell a short request from a long one."""
    mixed = next(scenario for scenario in SCENARIOS if scenario.name == "mixed-hardware")
    for policy in ("clockwork", "deferred"):
        assert play(mixed, policy + "+costs", 1, 1.0).goodput > play(mixed, policy, 1, 1.0).goodput


def test_shortest_first_beats_fifo_in_the_mean_and_ageing_bounds_the_worst() -> None:
    """PrefillOnly: predictable times make shortest-first pay; ageing keeps the long from starving."""
    classes = (SloClass("standard", 1, 1.0, 10.0),)
    shape = Shape(name="s", slo="standard", view_tokens=4000, view_spread=1.0, view_limits=(200, 18_000))
    cost = Cost(0.004, 1e-5, 2e-5)
    p50, worst = {}, {}
    for policy in ("round-robin", "shortest-first"):
        summary = run(policy, [plan("n", cost, 1)], poisson([(1, shape)], 15.5, 1), classes, 60.0)
        p50[policy], worst[policy] = summary.p50_by_class["standard"], summary.p99_by_class["standard"]
    assert p50["shortest-first"] < p50["round-robin"]
    assert worst["shortest-first"] < 30.0


def test_least_tokens_beats_round_robin_on_unequal_nodes() -> None:
    mixed = next(scenario for scenario in SCENARIOS if scenario.name == "mixed-hardware")
    goodput = {}
    for policy in ("round-robin", "least-tokens"):
        world = mixed.build(1, 1.0)
        simulation = Simulation(POLICIES[policy](world.classes), world.plans, world.load, world.classes, 1)
        goodput[policy] = simulation.run(world.horizon_s).goodput
    assert goodput["least-tokens"] > 1.1 * goodput["round-robin"]
