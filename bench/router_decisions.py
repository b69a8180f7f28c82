"""Time of one router decision under a standing queue.

A virtual fleet runs at 95 % load with `--queued` requests already waiting; each `handle` call (submit, start, done and
timer as they come) is timed. The curve repeats it for shorter and longer queues.

    python bench/router_decisions.py --queued 10000 --nodes 64 --json
"""

import argparse
import gc
import json
import time
from random import Random

from mainspring.core.actions import Action
from mainspring.core.cost import Cost
from mainspring.core.events import Event
from mainspring.core.nouns import Limits, NodeSpec, SloClass
from mainspring.core.router import Router
from mainspring.simulate.simulation import NodePlan, Simulation
from mainspring.simulate.vnode import Truth
from mainspring.simulate.workload import Shape, poisson

CLASSES = (
    SloClass("interactive", 2, 4.0, 1.0),
    SloClass("standard", 1, 2.0, 100_000.0),
    SloClass("batch", 0, 1.0, None),
)
SHAPES = [
    (6, Shape(name="i", slo="interactive", view_tokens=2000, view_spread=0.5)),
    (3, Shape(name="s", slo="standard", view_tokens=6000, view_spread=0.6, branches=(4, 60), hot_views=500)),
    (1, Shape(name="b", slo="batch", view_tokens=8000, view_spread=0.6, branches=(4, 200))),
]
FAST = Cost(0.004, 1e-5, 2e-5)
SLOW = Cost(0.010, 1e-4, 2e-4)


class Timed:
    """The router with a stopwatch; `samples` are (event, seconds)."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.samples: list[tuple[str, float]] = []
        self.on = False

    def handle(self, event: Event, now_s: float) -> list[Action]:
        begin = time.perf_counter()
        actions = self.router.handle(event, now_s)
        if self.on:
            self.samples.append((type(event).__name__, time.perf_counter() - begin))
        return actions

    def next_deadline(self) -> float | None:
        return self.router.next_deadline()


def fleet(count: int, noise: float) -> list[NodePlan]:
    """Three in four are fast, the rest a tenth of the speed."""
    plans = []
    for index in range(count):
        cost = SLOW if index % 4 == 3 else FAST
        spec = NodeSpec(id=f"n{index}", model="m", cost=cost, limits=Limits(pass_tokens=40_000))
        plans.append(NodePlan(spec, Truth(cost, noise=noise)))
    return plans


def rate(count: int, load: float) -> float:
    """Requests a second that fill so much of the fleet: a mean request costs 0.083 s on a fast node."""
    fast = sum(1.0 if index % 4 != 3 else 0.1 for index in range(count))
    return load * fast / 0.083


def measure(queued: int, nodes: int, events: int) -> dict[str, float | int | dict[str, float]]:
    policy = Timed(Router(CLASSES))
    per_s = rate(nodes, 0.95)
    simulation = Simulation(policy, fleet(nodes, 0.05), poisson(SHAPES, per_s, 1), CLASSES, seed=1)
    rng = Random(7)
    while simulation.world.step():
        pass
    for serial in range(queued):
        shape = SHAPES[1 + serial % 2][1]
        request = shape.draw(rng, 1_000_000 + serial)
        simulation._submit(request)
    simulation._until_s = 1e9
    simulation.world.at(0.03, simulation._next_arrival)
    for _ in range(4 * nodes):
        simulation.world.step()
    gc.collect()
    gc.freeze()
    policy.on = True
    while len(policy.samples) < events:
        simulation.world.step()
    gc.unfreeze()
    times = sorted(seconds for _, seconds in policy.samples)
    kinds: dict[str, list[float]] = {}
    for kind, seconds in policy.samples:
        kinds.setdefault(kind, []).append(seconds)
    left = sum(model.queued() for model in policy.router.state.models.values())
    return {
        "queued": queued,
        "queued_at_end": left,
        "nodes": nodes,
        "median_us": round(times[len(times) // 2] * 1e6, 1),
        "p99_us": round(times[len(times) * 99 // 100] * 1e6, 1),
        "mean_us": round(sum(times) / len(times) * 1e6, 1),
        "mean_us_by_event": {kind: round(sum(ts) / len(ts) * 1e6, 1) for kind, ts in sorted(kinds.items())},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    main_point = measure(args.queued, args.nodes, args.events)
    curve = [measure(max(1, args.queued * scale // 100), args.nodes, args.events // 4) for scale in (1, 10, 100, 400)]
    report = {**main_point, "curve": curve}
    if args.json:
        print(json.dumps(report, indent=1))
        return
    for point in [main_point, *curve]:
        print({key: value for key, value in point.items() if key != "mean_us_by_event"})
    print(main_point["mean_us_by_event"])


if __name__ == "__main__":
    main()
