"""The worlds in which schedulers are compared, each made from a seed. Costs are of the order of the measured ones.

Clockwork's recipes use its ResNet-50: 1.9 ms a batch and 0.77 ms an image; the rest a fast GPU of 100,000 view tokens/s
and a node of a tenth of that. A mean request of the `mixed` load costs 0.087 s on the fast node.
"""

from collections.abc import Callable
from math import exp
from random import Random

from msgspec import Struct

from mainspring.core.cost import Cost, RoundCost, Sample
from mainspring.core.nouns import DEFAULT_CLASSES, Limits, NodeSpec, SloClass, pairs
from mainspring.simulate.simulation import NodePlan, Workload
from mainspring.simulate.vnode import Truth
from mainspring.simulate.workload import Both, ClosedLoop, Open, Shape, burst_period_s, bursts, poisson

FAST = Cost(0.004, 1e-5, 2e-5)
SLOW = Cost(0.010, 1e-4, 2e-4)
RESNET = Cost(0.0019, 0.0, 0.00077)
ROUND = RoundCost(0.008, 0.0004, 2e-8, 2.5)
MIXED = [
    (50, Shape(name="i", slo="interactive", view_tokens=2000, view_spread=0.5)),
    (35, Shape(name="s", slo="standard", view_tokens=6000, view_spread=0.6, branches=(4, 60))),
    (15, Shape(name="b", slo="batch", view_tokens=8000, view_spread=0.6, branches=(4, 200))),
]
MIXED_S = 0.087
TAIL_S = 12.0
"""Arrivals after the horizon, longer than the longest target."""


class World(Struct, frozen=True):
    """One run to be made: everything but the policy."""

    plans: list[NodePlan]
    load: Workload
    classes: tuple[SloClass, ...]
    horizon_s: float
    tail_s: float = 0.0


class Scenario(Struct, frozen=True):
    """`build(seed, scale)`: scale stretches the horizon, 1 being the quick one."""

    name: str
    build: Callable[[int, float], World]


def anchors(cost: Cost, noise: float, seed: int) -> tuple[Sample, ...]:
    """What a node measures of itself before it joins, as noisy as all it does."""
    rng = Random(seed)
    shapes = [(view, rows) for view in (200, 1000, 4000, 12_000) for rows in (8, 64, 512, 2048)]
    return tuple(
        (v, r, pairs(0, v, r), cost.seconds(v, r, pairs(0, v, r)) * exp(rng.gauss(0.0, noise))) for v, r in shapes
    )


def plan(name: str, cost: Cost, seed: int, noise: float = 0.02, **fields: object) -> NodePlan:
    """A node that tells the truth and varies by so much (log-normal sigma) from pass to pass."""
    faults = fields.pop("faults", ())
    joins = fields.pop("joins_s", 0.0)
    network = fields.setdefault("network_s", 0.001)
    fields.setdefault("anchors", anchors(cost, noise, seed))
    fields.setdefault("model", "m")
    spec = NodeSpec(id=name, cost=cost, **fields)  # type: ignore[arg-type]
    jitter = float(network) / 4.0  # type: ignore[arg-type]
    truth = Truth(cost, spec.round_cost, noise=noise, jitter_s=jitter)
    return NodePlan(spec, truth, joins, faults)  # type: ignore[arg-type]


def fleet(fast: int, slow: int, seed: int, noise: float = 0.02, **fields: object) -> list[NodePlan]:
    nodes = [plan(f"fast{i}", FAST, seed + i, noise, **fields) for i in range(fast)]
    return nodes + [plan(f"slow{i}", SLOW, seed + 50 + i, noise, **fields) for i in range(slow)]


def images(count: int, seed: int) -> list[NodePlan]:
    limits = Limits(pass_parts=16)
    measured = tuple((1, rows, 0, RESNET.seconds(1, rows)) for rows in (1, 2, 4, 8, 16) * 4)
    return [
        plan(f"gpu{i}", RESNET, seed + i, 0.005, limits=limits, network_s=0.0002, anchors=measured)
        for i in range(count)
    ]


def image(name: str, slo: str) -> Shape:
    return Shape(name=name, slo=slo, view_tokens=1, branches=(1, 1), rows=1)


def closed(target_ms: int) -> Scenario:
    """32 callers in a closed loop on one device, as in figure 5 of the paper."""

    def build(seed: int, scale: float) -> World:
        classes = (SloClass("image", 1, 1.0, target_ms / 1000.0),)
        load = ClosedLoop([(32, image("c", "image"))], seed, think_s=0.001, backoff_s=0.01)
        return World(images(1, seed), load, classes, 0.6 * scale)

    return Scenario(f"closed-{target_ms}ms", build)


def growing(rate: float) -> Scenario:
    """Poisson arrivals while the target grows from 2.9 ms by half with each step."""

    def build(seed: int, scale: float) -> World:
        step = 0.2 * scale
        classes = tuple(SloClass(f"slo{k}", 1, 1.0, 0.0029 * 1.5**k) for k in range(8))
        base = poisson([(1, image("p", "slo0"))], rate, seed)
        return World(images(3, seed), Stepped(base, step, len(classes)), classes, step * len(classes))

    return Scenario(f"growing-{rate:.0f}", build)


class Stepped:
    """Gives every arrival the class of its time."""

    def __init__(self, base: Open, step_s: float, steps: int) -> None:
        self.base, self.step_s, self.steps = base, step_s, steps

    def arrivals(self):  # type: ignore[no-untyped-def]
        from msgspec.structs import replace

        for when, request in self.base.arrivals():
            yield when, replace(request, slo=f"slo{min(self.steps - 1, int(when / self.step_s))}")

    def closed(self, outcome, now_s):  # type: ignore[no-untyped-def]
        return ()


def isolation(seed: int, scale: float) -> World:
    """A foreground of 300 requests/s with a target of 50 ms beside a flood without one."""
    classes = (SloClass("foreground", 2, 4.0, 0.05), SloClass("background", 0, 1.0, None))
    front = poisson([(1, image("f", "foreground"))], 300.0, seed)
    back = ClosedLoop([(24, image("g", "background"))], seed + 1, think_s=0.0005)
    return World(images(1, seed), Both(front, back), classes, 0.8 * scale)


def burst(seed: int, scale: float) -> World:
    """3.2 requests/s in the mean, 112/s for 16 s (four times what the fleet can do), two fast and two slow nodes."""
    return World(fleet(2, 2, seed), bursts(MIXED, 3.2, seed), DEFAULT_CLASSES, burst_period_s() * max(1.0, scale / 2.0))


def mixed_hardware(seed: int, scale: float) -> World:
    """One fast node and ten of a tenth of its speed, at 2.5 times what they can do together."""
    load = poisson(MIXED, 2.5 * 2.0 / MIXED_S, seed)
    return World(fleet(1, 10, seed), load, DEFAULT_CLASSES, 20.0 * scale, TAIL_S)


def hot_view(seed: int, scale: float) -> World:
    """Half of all requests ask about one of twelve views; capacity depends on finding them cached."""
    hot = Shape(name="h", slo="interactive", view_tokens=9000, branches=(2, 12), hot_views=12)
    load = poisson([(50, hot), *((share / 2, shape) for share, shape in MIXED)], 80.0, seed)
    return World(fleet(3, 0, seed), load, DEFAULT_CLASSES, 12.0 * scale, TAIL_S)


def node_loss(seed: int, scale: float) -> World:
    """One of three nodes dies in the middle and comes back."""
    horizon = 16.0 * scale
    nodes = fleet(2, 0, seed)
    faults = ((horizon * 0.35, "die", 0.0), (horizon * 0.7, "rejoin", 1.0))
    nodes.append(plan("frail", FAST, seed + 9, faults=faults))
    return World(nodes, poisson(MIXED, 1.1 * 3.0 / MIXED_S, seed), DEFAULT_CLASSES, horizon, TAIL_S)


def noisy(sigma: float) -> Scenario:
    def build(seed: int, scale: float) -> World:
        load = poisson(MIXED, 1.3 * 3.0 / MIXED_S, seed)
        return World(fleet(3, 0, seed, sigma), load, DEFAULT_CLASSES, 16.0 * scale, TAIL_S)

    return Scenario(f"noise-{sigma * 100:.0f}", build)


def generation(seed: int, scale: float) -> World:
    """Scoring at 1.3 times two devices beside streams that need a first token within a second."""
    limits = Limits(slots=8, context_tokens=200_000)
    chat = Shape(name="g", slo="interactive", view_tokens=1500, view_spread=0.7, max_tokens=(50, 300))
    load = poisson([(15, chat), *MIXED], 1.3 * 2.0 / MIXED_S, seed)
    return World(fleet(2, 0, seed, limits=limits, round_cost=ROUND), load, DEFAULT_CLASSES, 20.0 * scale, TAIL_S)


SCENARIOS = (
    *(closed(target) for target in (10, 25, 50, 100, 250, 500)),
    *(growing(rate) for rate in (600.0, 1200.0, 2400.0)),
    Scenario("isolation", isolation),
    Scenario("bursts", burst),
    Scenario("mixed-hardware", mixed_hardware),
    Scenario("hot-view", hot_view),
    Scenario("node-loss", node_loss),
    noisy(0.05),
    noisy(0.20),
    Scenario("scoring-and-generation", generation),
)
