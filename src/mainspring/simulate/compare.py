"""Every policy in every scenario over the same seeds, and the table made of it."""

from collections.abc import Callable, Iterable
from typing import Any

from mainspring.core.nouns import SloClass
from mainspring.core.router import Router
from mainspring.simulate.policies.bound import LeastTokens, RoundRobin
from mainspring.simulate.policies.clockwork import Clockwork
from mainspring.simulate.policies.deferred import Deferred
from mainspring.simulate.policies.informed import ClockworkCosts, DeferredCosts
from mainspring.simulate.policies.shortest import ShortestFirst
from mainspring.simulate.record import Summary
from mainspring.simulate.scenarios import SCENARIOS, Scenario
from mainspring.simulate.simulation import Policy, Simulation

OURS = "mainspring"
POLICIES: dict[str, Callable[[tuple[SloClass, ...]], Policy]] = {
    "round-robin": RoundRobin,
    "least-tokens": LeastTokens,
    "clockwork": Clockwork,
    "deferred": Deferred,
    "shortest-first": ShortestFirst,
    "clockwork+costs": ClockworkCosts,
    "deferred+costs": DeferredCosts,
    OURS: Router,
}
INFORMED = ("clockwork+costs", "deferred+costs")
"""Published rules told what only our router knows: an ablation, not baselines. They have a ratio of their own."""
QUICK_SEEDS, FULL_SEEDS = 3, 20
QUICK_SCALE, FULL_SCALE = 1.0, 2.0


def play(scenario: Scenario, policy: str, seed: int, scale: float) -> Summary:
    world = scenario.build(seed, scale)
    simulation = Simulation(POLICIES[policy](world.classes), world.plans, world.load, world.classes, seed)
    return simulation.run(world.horizon_s, tail_s=world.tail_s)


def compare(
    *,
    quick: bool,
    only: Iterable[str] = (),
    policies: Iterable[str] = (),
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """`scenarios[].{name, best_baseline, ratio, best_with_costs, ratio_with_costs, policies[].{policy, goodput,
    p99_by_class, refused, ...}}`."""
    seeds, scale = (QUICK_SEEDS, QUICK_SCALE) if quick else (FULL_SEEDS, FULL_SCALE)
    wanted, names = set(only), [name for name in POLICIES if not policies or name in set(policies)]
    report: list[dict[str, Any]] = []
    for scenario in SCENARIOS:
        if wanted and scenario.name not in wanted:
            continue
        if progress is not None:
            progress(scenario.name)
        rows = [row(name, [play(scenario, name, seed, scale) for seed in range(1, seeds + 1)]) for name in names]
        report.append({"name": scenario.name, **standing(rows), "policies": rows})
    return {"quick": quick, "seeds": seeds, "scenarios": report}


def row(policy: str, runs: list[Summary]) -> dict[str, Any]:
    """Means over the seeds; p99 is the mean of the runs' p99."""
    classes = sorted({name for run in runs for name in run.p99_by_class})

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    return {
        "policy": policy,
        "goodput": round(mean([run.goodput for run in runs]), 3),
        "goodput_by_class": {c: round(mean([run.goodput_by_class.get(c, 0.0) for run in runs]), 3) for c in classes},
        "p99_by_class": {c: round(mean([run.p99_by_class.get(c, 0.0) for run in runs]), 6) for c in classes},
        "attained_by_class": {c: round(mean([run.attained_by_class.get(c, 1.0) for run in runs]), 6) for c in classes},
        "refused": round(mean([float(run.refused) for run in runs]), 2),
        "missed": round(mean([float(run.missed) for run in runs]), 2),
    }


def standing(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Ours against the best of what was published, and against the best of it with our costs."""
    mine = next((entry for entry in rows if entry["policy"] == OURS), None)
    found: dict[str, Any] = {}
    published = [entry for entry in rows if entry["policy"] not in (OURS, *INFORMED)]
    informed = [entry for entry in rows if entry["policy"] in INFORMED]
    for others, name, ratio in (
        (published, "best_baseline", "ratio"),
        (informed, "best_with_costs", "ratio_with_costs"),
    ):
        if others and mine is not None:
            best = max(others, key=lambda entry: entry["goodput"])
            found |= {name: best["policy"], ratio: round(mine["goodput"] / max(1e-9, best["goodput"]), 4)}
    return found


def table(report: dict[str, Any]) -> str:
    """Goodput as a share of the best published baseline's, a line a scenario."""
    names = [entry["policy"] for entry in report["scenarios"][0]["policies"]]
    last = "ours / best published | ours / best with our costs"
    lines = ["| scenario | " + " | ".join(names) + f" | {last} |", "|---" * (len(names) + 3) + "|"]
    for scenario in report["scenarios"]:
        best = best_published(scenario)
        cells = [f"{entry['goodput'] / best:.2f}" for entry in scenario["policies"]]
        cells += [f"{scenario[key]:.3f}" if key in scenario else "" for key in ("ratio", "ratio_with_costs")]
        lines.append(f"| {scenario['name']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def best_published(scenario: dict[str, Any]) -> float:
    """Goodput of the best baseline, the measure of the others."""
    others = [entry["goodput"] for entry in scenario["policies"] if entry["policy"] not in (OURS, *INFORMED)]
    return max(others, default=1.0) or 1.0
