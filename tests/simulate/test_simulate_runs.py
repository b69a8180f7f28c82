"""The simulator itself: virtual time, nodes, faults, traces, figures, plots, the command line."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainspring.cli.simulate import command
from mainspring.core.cost import Cost
from mainspring.core.nouns import DEFAULT_CLASSES, Limits
from mainspring.core.router import Router
from mainspring.errors import MalformedError
from mainspring.simulate import daylong
from mainspring.simulate.compare import POLICIES
from mainspring.simulate.compare import play as play_scenario
from mainspring.simulate.hindsight import hindsight
from mainspring.simulate.planning import read_plan, solve
from mainspring.simulate.record import quantile
from mainspring.simulate.scenarios import FAST, MIXED, MIXED_S, ROUND, SCENARIOS, SLOW, fleet, plan
from mainspring.simulate.scenarios import World as Scene
from mainspring.simulate.simulation import NodePlan, Simulation
from mainspring.simulate.tracefile import chrome_trace, read_trace, write_trace
from mainspring.simulate.vnode import Truth
from mainspring.simulate.workload import Both, ClosedLoop, Shape, Trace, bursts, poisson
from mainspring.simulate.world import World
from router_rig import node, score


def run(plans: list[NodePlan], load: object, seconds: float, seed: int = 1) -> Simulation:
    simulation = Simulation(Router(), plans, load, DEFAULT_CLASSES, seed)  # type: ignore[arg-type]
    simulation.run(seconds)
    return simulation


def test_virtual_time_runs_in_order_and_ties_in_the_order_made() -> None:
    world, seen = World(), []
    for when, name in ((2.0, "c"), (1.0, "a"), (1.0, "b")):
        world.at(when, seen.append, name)
    while world.step():
        pass
    assert seen == ["a", "b", "c"]


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    logs = []
    for name in ("one", "two"):
        path = tmp_path / name
        result = CliRunner().invoke(command, ["run", "--scenario", "noise-20", "--log", str(path), "--json"])
        assert result.exit_code == 0, result.output
        logs.append((path.read_bytes(), result.output))
    assert logs[0] == logs[1]
    assert len(logs[0][0]) > 10_000


def test_bursts_peak_at_35_times_the_mean() -> None:
    times = [when for when, _ in zip((w for w, _ in bursts(MIXED, 3.2, 1).arrivals()), range(2000), strict=False)]
    inside = sum(5.0 <= when < 21.0 for when in times)
    assert inside / 16.0 == pytest.approx(35.0 * 3.2, rel=0.1)


def test_closed_loops_never_exceed_their_callers() -> None:
    shape = Shape(name="c", slo="batch", view_tokens=1000)
    simulation = run([plan("n", FAST, 1)], ClosedLoop([(4, shape)], 1), 3.0)
    events = sorted([(o.arrival_s, 1) for o in simulation.outcomes.values()] +
                    [(o.done_s, -1) for o in simulation.outcomes.values()])  # fmt: skip
    level = peak = 0
    for _, step in events:
        level += step
        peak = max(peak, level)
    assert peak <= 4


def test_traces_survive_the_disk(tmp_path: Path) -> None:
    entries = [(0.5, score("a")), (0.25, score("b", "batch", view_key="k", deadline_s=2.0))]
    path = tmp_path / "t.jsonl"
    assert write_trace(path, entries) == 2
    assert read_trace(path) == entries
    path.write_text('{"at_s": 1}\n')
    with pytest.raises(MalformedError, match="line 1"):
        read_trace(path)
    path.write_text("nonsense\n")
    with pytest.raises(MalformedError):
        read_trace(path)


@pytest.mark.parametrize("fault", [("die", 0.0), ("freeze", 0.0), ("slow", 8.0), ("leave", 0.0)])
def test_faults_lose_no_request(fault: tuple[str, float]) -> None:
    faults = ((2.0, *fault), (6.0, "thaw", 0.0), (6.5, "slow", 1.0))
    plans = [*fleet(1, 0, 1), plan("bad", FAST, 2, faults=faults)]
    simulation = run(plans, poisson(MIXED, 0.5 * 2.0 / MIXED_S, 1), 10.0)
    states = {o.state for o in simulation.outcomes.values()}
    assert "open" not in states
    assert "failed" not in states
    urgent = [o for o in simulation.outcomes.values() if o.slo.name == "interactive" and o.admitted]
    assert sum(o.in_time for o in urgent) >= 0.9 * len(urgent)


def test_a_flapping_node_and_a_poisonous_request() -> None:
    faults = tuple(
        item for k in range(5) for item in ((1.0 + 2 * k, "die", 0.0), (2.0 + 2 * k, "rejoin", float(k + 1)))
    )
    plans = [*fleet(1, 0, 1), plan("flaps", FAST, 2, faults=faults)]
    simulation = run(plans, poisson(MIXED, 10.0, 1), 12.0)
    assert {o.state for o in simulation.outcomes.values()} <= {"answered", "refused", "missed"}
    poison = Truth(FAST, poison=frozenset({"killer"}), detect_s=0.05)
    revive = tuple((0.5 + 0.5 * k, "rejoin", float(k + 1)) for k in range(8))
    deadly = [NodePlan(node("a"), poison, 0.0, revive)]
    simulation = run(deadly, Trace([(0.2, score("killer", "batch")), (0.21, score("fine", "batch"))]), 10.0)
    assert simulation.outcomes["killer"].code == "condemned"
    assert simulation.outcomes["fine"].state == "answered"


def test_a_node_that_lies_about_its_cost_is_found_out() -> None:
    liar = NodePlan(node("liar", Cost(0.001, 2e-6, 4e-6)), Truth(FAST))
    simulation = run([liar, *fleet(1, 0, 1)], poisson(MIXED, 10.0, 1), 20.0)
    learnt = simulation.policy.state.nodes["liar"].fit.cost  # type: ignore[attr-defined]
    assert learnt.seconds(6000, 1000) == pytest.approx(FAST.seconds(6000, 1000), rel=0.1)


def test_clock_drift_does_no_harm() -> None:
    plans = [NodePlan(node("a"), Truth(FAST, drift=0.001)), NodePlan(node("b"), Truth(FAST, drift=-0.001))]
    simulation = run(plans, poisson(MIXED, 15.0, 1), 10.0)
    assert all(o.in_time for o in simulation.outcomes.values() if o.slo.name != "batch")


def test_streams_keep_their_rate_beside_scoring() -> None:
    limits = Limits(slots=4, context_tokens=100_000)
    chat = Shape(name="g", slo="interactive", view_tokens=1000, max_tokens=(100, 100))
    load = Both(poisson([(1, chat)], 1.0, 1), poisson(MIXED, 8.0, 2))
    plans = fleet(1, 0, 1, limits=limits, round_cost=ROUND)
    simulation = run(plans, load, 20.0)
    rounds = [begin + took for begin, took, kind, _ in simulation.nodes["fast0"].trace if kind == "round"]
    passes = [took for _, took, kind, _ in simulation.nodes["fast0"].trace if kind == "pass"]
    assert rounds
    gap = 0.1 * ROUND.tokens
    streams = [o for o in simulation.outcomes.values() if o.request.max_tokens]
    assert all(o.state in ("answered", "refused", "missed") for o in streams)
    assert passes
    between = sorted(b - a for a, b in pairwise(rounds))
    live = [value for value in between if value < 1.0]  # longer ones are silences without a stream
    assert quantile(live, 0.99) <= gap * 1.25


def test_a_slow_node_adds_most_of_its_own_throughput_and_leaves_the_urgent_alone() -> None:
    urgent = Shape(name="i", slo="interactive", view_tokens=2000, view_spread=0.4)
    bulk = Shape(name="b", slo="batch", view_tokens=6000, view_spread=0.5, branches=(4, 60))

    def measure(plans: list[NodePlan], rate: float) -> tuple[float, float]:
        load = Both(*([poisson([(1, urgent)], rate, 1)] if rate else []), poisson([(1, bulk)], 40.0, 2))
        simulation = run(plans, load, 150.0)
        done = sum(
            o.request.tokens for o in simulation.outcomes.values() if o.slo.name == "batch" and 0 < o.done_s <= 150.0
        )
        waits = sorted(o.latency_s for o in simulation.outcomes.values() if o.slo.name == "interactive")
        return done / 150.0, quantile(waits, 0.99)

    without, p99 = measure(fleet(1, 0, 1), 12.0)
    with_slow, p99_with = measure(fleet(1, 1, 1), 12.0)
    solo, _ = measure([plan("slow0", SLOW, 51)], 0.0)
    assert with_slow - without >= 0.8 * solo
    assert p99_with <= 1.02 * p99


@pytest.mark.parametrize(("noise", "share"), [(0.0, 0.9999), (0.05, 0.999)])
def test_admitted_top_class_work_keeps_its_target(noise: float, share: float) -> None:
    admitted = kept = 0
    for seed in range(4):
        simulation = run(fleet(3, 0, seed, noise), poisson(MIXED, 2.0 * 3.0 / MIXED_S, seed), 25.0, seed)
        mine = [o for o in simulation.outcomes.values() if o.slo.name == "interactive" and o.admitted]
        admitted += len(mine)
        kept += sum(o.in_time for o in mine)
    assert admitted > 2000
    assert kept / admitted >= share


def test_an_hour_of_the_day_runs_in_seconds() -> None:
    world = daylong.build(1, 0.5)
    simulation = Simulation(Router(), world.plans, world.load, world.classes, 1)
    summary = simulation.run(world.horizon_s)
    assert summary.open == 0
    assert summary.attained_by_class["interactive"] == 1.0


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "mainspring"])
def test_every_baseline_answers_or_refuses_everything(policy: str) -> None:
    for scenario in SCENARIOS:
        if scenario.name in ("node-loss", "scoring-and-generation", "closed-25ms"):
            summary = play_scenario(scenario, policy, 1, 0.5)
            assert summary.open == 0, scenario.name


def test_plots_and_timelines(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    png, chrome = tmp_path / "run.png", tmp_path / "run.json"
    arguments = ["run", "--scenario", "node-loss", "--plot", str(png), "--chrome", str(chrome)]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    assert png.read_bytes()[:4] == b"\x89PNG"
    assert len(json.loads(chrome.read_bytes())["traceEvents"]) > 50
    assert "interactive" in result.output


def test_chrome_trace_is_valid_json() -> None:
    simulation = run(fleet(1, 0, 1), Trace([(0.1, score("a"))]), 1.0)
    events = json.loads(chrome_trace(simulation.nodes))["traceEvents"]
    assert [event["ph"] for event in events] == ["M", "X"]


def test_plan_finds_the_cheapest_fleet(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        """
        [load]
        rate = 15.0
        seconds = 8.0
        [targets]
        interactive = 0.99
        standard = 0.99
        [[node]]
        name = "gpu"
        cost = [0.004, 1e-5, 2e-5]
        price_per_hour = 2.5
        most = 4
        [[node]]
        name = "cpu"
        cost = [0.010, 1e-4, 2e-4]
        price_per_hour = 0.4
        most = 2
        """
    )
    report = solve(read_plan(path), tmp_path)
    assert report["best"] is not None
    assert report["best"]["fleet"]["gpu"] >= 1
    assert all(not entry["holds"] for entry in report["tried"][:-1])
    result = CliRunner().invoke(command, ["plan", str(path), "--json"])
    assert json.loads(result.output)["best"] == report["best"]


@pytest.mark.parametrize(
    "text", ["[load", "[load]\nrate = 1\n[targets]\ngold = 1\n[[node]]\nname='n'\ncost=[1]\nprice_per_hour=1"]
)
def test_bad_plans_are_told_what_is_wrong(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    result = CliRunner().invoke(command, ["plan", str(path)])
    assert result.exit_code != 0
    assert "Traceback" not in result.output


def test_unknown_names_are_usage_errors() -> None:
    for arguments in (["run", "--scenario", "x"], ["run", "--policy", "x"], ["compare", "--only", "x"]):
        assert CliRunner().invoke(command, arguments).exit_code == 2


def test_compare_reports_what_was_promised() -> None:
    result = CliRunner().invoke(command, ["compare", "--quick", "--json", "--only", "closed-25ms"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output[result.output.index("{") :])
    (scenario,) = report["scenarios"]
    assert {entry["policy"] for entry in scenario["policies"]} == set(POLICIES)
    assert {"policy", "goodput", "p99_by_class", "refused"} <= set(scenario["policies"][0])


def test_refusals_are_mostly_right_in_hindsight() -> None:
    urgent = Shape(name="i", slo="interactive", view_tokens=2000, view_spread=0.5)

    def build() -> Scene:
        return Scene(fleet(2, 0, 1), poisson([(1, urgent)], 1.5 * 2.0 / 0.034, 1), DEFAULT_CLASSES, 6.0)

    verdict = hindsight(build, "interactive", 1)
    assert verdict.refused > 60
    assert verdict.recall >= 0.99
    assert verdict.precision >= 0.8
