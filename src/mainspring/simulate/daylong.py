"""The day the router was built for: 2.2 billion tokens, 25.5k/s in the mean, peaks of 110 requests/s.

Two fast devices that run two models each (1.27 times the throughput of one alone, so each model runs at 1 / 1.57 of its
speed while the other is busy) and two slow nodes, one a model. Views of 500 to 18,000 tokens, one to hundreds of
branches.
"""

from mainspring.core.nouns import DEFAULT_CLASSES, SloClass
from mainspring.simulate.scenarios import FAST, SLOW, World, plan
from mainspring.simulate.simulation import NodePlan
from mainspring.simulate.workload import Shape, day

DAY_S = 86_400.0
BUSY = 2.0 / 1.27


def shapes() -> list[tuple[float, Shape]]:
    """About 8,000 tokens a request in the mean, half of them for each model."""
    limits = (500, 18_000)
    mix: list[tuple[float, Shape]] = []
    for model in ("large", "small"):
        mix += [
            (45, Shape(name=f"i-{model}", model=model, slo="interactive", view_tokens=3500, view_spread=0.6,
                       view_limits=limits, branches=(1, 16))),
            (40, Shape(name=f"s-{model}", model=model, slo="standard", view_tokens=6500, view_spread=0.6,
                       view_limits=limits, branches=(4, 80))),
            (15, Shape(name=f"b-{model}", model=model, slo="batch", view_tokens=9000, view_spread=0.6,
                       view_limits=limits, branches=(8, 300))),
        ]  # fmt: skip
    return mix


def nodes(seed: int) -> list[NodePlan]:
    plans: list[NodePlan] = []
    for index in range(2):
        for model in ("large", "small"):
            name = f"gpu{index}-{model}"
            plans.append(plan(name, FAST, seed + len(plans), 0.03, model=model, device_key=f"gpu{index}",
                              busy_neighbour=BUSY))  # fmt: skip
    for model in ("large", "small"):
        plans.append(plan(f"mac-{model}", SLOW, seed + len(plans), 0.05, model=model))
    return plans


def build(seed: int, hours: float = 24.0) -> World:
    classes: tuple[SloClass, ...] = DEFAULT_CLASSES
    return World(nodes(seed), day(shapes(), seed), classes, hours * 3600.0)
