"""The router against a brute-force planner on tiny instances.

Both nodes are busy when five requests arrive within 5 us. The oracle knows all five and tries every assignment to the
two unequal nodes and every ordered partition of each node's share into passes. The router must admit or refuse each at
once, before it has seen the next, so some gap is the price of not knowing: it keeps 0.73 of the optimum in the mean.
"""

from collections.abc import Iterator
from itertools import combinations
from random import Random

from mainspring.core.cost import Cost
from mainspring.core.nouns import NodeSpec, Request, SloClass
from router_rig import node, play, score

CLASSES = (
    SloClass("interactive", 2, 4.0, 0.5),
    SloClass("standard", 1, 2.0, 1.0),
    SloClass("batch", 0, 1.0, None),
)
NET_S = 0.0005


def ordered_partitions(items: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
    if not items:
        yield []
    for size in range(1, len(items) + 1):
        for first in combinations(items, size):
            rest = tuple(item for item in items if item not in first)
            for others in ordered_partitions(rest):
                yield [first, *others]


def best_of(cost: Cost, share: tuple[int, ...], requests: list[Request], free_s: float) -> float:
    best = 0.0
    for plan in ordered_partitions(share):
        now, value = free_s + NET_S, 0.0
        for batch in plan:
            now += cost.seconds(
                sum(requests[i].view_tokens for i in batch), sum(sum(requests[i].branches) for i in batch)
            )
            value += sum(worth(requests[i]) for i in batch if now <= target(requests[i]))
        best = max(best, value)
    return best


def worth(request: Request) -> float:
    return next(c.weight for c in CLASSES if c.name == request.slo) * request.tokens


def target(request: Request) -> float:
    return next(c.target_s or 0.0 for c in CLASSES if c.name == request.slo)


def optimum(specs: list[NodeSpec], requests: list[Request], free: list[float]) -> float:
    everyone = range(len(requests))
    best = 0.0
    for size in range(len(requests) + 1):
        for share in combinations(everyone, size):
            rest = tuple(i for i in everyone if i not in share)
            parts = zip(specs, (share, rest), free, strict=True)
            best = max(best, sum(best_of(spec.cost, part, requests, free_s) for spec, part, free_s in parts))
    return best


def instance(seed: int) -> tuple[list[NodeSpec], list[Request]]:
    rng = Random(seed)
    speeds = (1.0, rng.choice((1.0, 0.5, 0.2)))
    specs = [node(f"n{i}", Cost(0.005 / v, 4e-5 / v, 4e-5 / v), network_s=NET_S) for i, v in enumerate(speeds)]
    requests = [
        score(
            f"r{i}", rng.choice(("interactive", "standard")), view=rng.randint(1000, 9000), branches=rng.randint(1, 30)
        )
        for i in range(5)
    ]
    return specs, requests


def test_close_to_the_optimum() -> None:
    shares = []
    for seed in range(100):
        specs, requests = instance(seed)
        first = [(0.9, score(f"busy{i}", "batch", view=4000, branches=1)) for i in range(2)]
        entries = first + [(1.0 + i * 1e-6, request) for i, request in enumerate(requests)]
        outcomes, simulation = play(entries, specs, classes=CLASSES)
        free = [
            max([0.0] + [b + t - 1.0 for b, t, _, _ in simulation.nodes[spec.id].trace if b < 1.0]) for spec in specs
        ]
        mine = sum(worth(o.request) for o in outcomes.values() if o.in_time and o.slo.name != "batch")
        best = optimum(specs, requests, free)
        assert mine <= best + 1e-6, "the oracle must dominate, else it is no oracle"
        shares.append(mine / best if best else 1.0)
    mean = sum(shares) / len(shares)
    print(f"\nrouter / optimum: mean {mean:.3f}, tenth percentile {sorted(shares)[10]:.3f}, worst {min(shares):.3f}")
    assert mean >= 0.7
