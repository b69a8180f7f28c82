"""How many of which node for this load and these targets, at what cost: fleets in order of price, the first that holds.

[load]                      # a trace, or a rate of the `mixed` load
trace = "requests.jsonl"    # relative to the file
rate = 40.0
seconds = 60.0
seed = 1
[targets]                   # share of all submitted requests of the class answered in time
interactive = 0.999
[[node]]
name = "gpu"
cost = [0.004, 1e-5, 2e-5]  # seconds: fixed, per view token, per branch row
price_per_hour = 2.5
most = 8
"""

import tomllib
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert

from mainspring.core.cost import Cost
from mainspring.core.nouns import DEFAULT_CLASSES
from mainspring.core.router import Router
from mainspring.errors import InputError, MalformedError
from mainspring.simulate.scenarios import MIXED, plan
from mainspring.simulate.simulation import NodePlan, Simulation, Workload
from mainspring.simulate.tracefile import read_trace
from mainspring.simulate.workload import Trace, poisson

MOST_FLEETS = 400


class Load(Struct, frozen=True, forbid_unknown_fields=True):
    trace: str = ""
    rate: float = 0.0
    seconds: float = 60.0
    seed: int = 1


class Kind(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    cost: list[float]
    price_per_hour: float
    most: int = 8
    noise: float = 0.02


class Plan(Struct, frozen=True, forbid_unknown_fields=True):
    load: Load
    targets: dict[str, float]
    node: list[Kind]


def read_plan(path: Path) -> Plan:
    try:
        document = convert(tomllib.loads(path.read_text()), Plan)
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise MalformedError(str(error), param=path.name) from None
    known = {slo.name for slo in DEFAULT_CLASSES}
    for name in document.targets:
        if name not in known:
            raise InputError(f"no class {name!r}; there are {', '.join(sorted(known))}", param="targets")
    for kind in document.node:
        if len(kind.cost) not in (3, 4) or kind.most < 0 or kind.price_per_hour < 0.0:
            raise InputError("cost has three or four terms; most and price_per_hour are not negative", param=kind.name)
        Cost(*kind.cost).check()
    return document


def fleets(kinds: list[Kind]) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Every fleet that is not empty, the cheapest first."""
    counts = [counts for counts in product(*(range(kind.most + 1) for kind in kinds)) if any(counts)]
    price = [(sum(n * kind.price_per_hour for n, kind in zip(c, kinds, strict=True)), sum(c), c) for c in counts]
    for cost, _, fleet in sorted(price):
        yield cost, fleet


def solve(document: Plan, folder: Path, progress: Callable[[str], None] | None = None) -> dict[str, Any]:
    """The cheapest fleet that keeps the targets, with every fleet tried. A fleet within a failed one is not tried."""
    failed: list[tuple[int, ...]] = []
    tried: list[dict[str, Any]] = []
    for price, fleet in fleets(document.node):
        if any(all(a <= b for a, b in zip(fleet, bad, strict=True)) for bad in failed):
            continue
        if len(tried) >= MOST_FLEETS:
            break
        kept = attained(document, folder, fleet)
        holds = all(kept.get(name, 1.0) >= share for name, share in document.targets.items())
        named = {kind.name: count for kind, count in zip(document.node, fleet, strict=True)}
        tried.append({"fleet": named, "price_per_hour": round(price, 6), "attained": kept, "holds": holds})
        if progress is not None:
            progress(f"{named}: {kept}")
        if holds:
            return {"best": tried[-1], "tried": tried}
        failed.append(fleet)
    return {"best": None, "tried": tried}


def attained(document: Plan, folder: Path, fleet: tuple[int, ...]) -> dict[str, float]:
    load, horizon = workload(document.load, folder)
    plans: list[NodePlan] = []
    for kind, count in zip(document.node, fleet, strict=True):
        for index in range(count):
            plans.append(plan(f"{kind.name}{index}", Cost(*kind.cost), document.load.seed + len(plans), kind.noise))
    simulation = Simulation(Router(), plans, load, DEFAULT_CLASSES, document.load.seed)
    simulation.run(horizon)
    shares: dict[str, list[int]] = {}
    for outcome in simulation.outcomes.values():
        shares.setdefault(outcome.slo.name, []).append(int(outcome.in_time))
    return {name: round(sum(hits) / len(hits), 6) for name, hits in sorted(shares.items())}


def workload(load: Load, folder: Path) -> tuple[Workload, float]:
    if load.trace:
        entries = read_trace(folder / load.trace)
        return Trace(entries), max((when for when, _ in entries), default=0.0) + 1.0
    if load.rate <= 0.0:
        raise InputError("give a trace or a rate above 0", param="load")
    return poisson(MIXED, load.rate, load.seed), load.seconds
