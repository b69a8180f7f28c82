"""A small fleet to drive by hand or by simulation, shared by the router's tests."""

from collections.abc import Iterable

import msgspec

from mainspring.core.actions import Action, Admit, Answer, Refuse, SendPass
from mainspring.core.cost import Cost, RoundCost
from mainspring.core.events import Event, NodeJoined, Submit, WorkDone, WorkStarted
from mainspring.core.nouns import DEFAULT_CLASSES, Limits, NodeSpec, Pass, Request, SloClass, pairs
from mainspring.core.router import Router
from mainspring.simulate.record import Outcome
from mainspring.simulate.simulation import NodePlan, Simulation
from mainspring.simulate.vnode import Truth
from mainspring.simulate.workload import Trace

FAST = Cost(0.004, 1e-5, 2e-5)
SLOW = Cost(0.010, 1e-4, 2e-4)
ROUND = RoundCost(0.010, 0.001, 0.0, 2.0)


def measured(cost: Cost) -> tuple[tuple[int, int, int, float], ...]:
    """What an honest node measures of itself before it joins."""
    shapes = [(view, rows) for view in (200, 1000, 4000, 12_000) for rows in (8, 64, 512, 2048)]
    return tuple((v, r, pairs(0, v, r), cost.seconds(v, r, pairs(0, v, r))) for v, r in shapes)


def node(name: str = "n", cost: Cost = FAST, **fields: object) -> NodeSpec:
    fields.setdefault("anchors", measured(cost))
    return NodeSpec(id=name, model=str(fields.pop("model", "m")), cost=cost, **fields)  # type: ignore[arg-type]


def score(name: str, slo: str = "interactive", view: int = 2000, branches: int = 8, **fields: object) -> Request:
    rows = fields.pop("rows", 64)
    return Request(
        id=name, model=str(fields.pop("model", "m")), slo=slo, view_tokens=view, branches=(rows,) * branches, **fields
    )  # type: ignore[arg-type]


def generate(name: str, slo: str = "interactive", prompt: int = 1000, tokens: int = 100, **fields: object) -> Request:
    return Request(id=name, model="m", slo=slo, view_tokens=prompt, max_tokens=tokens, **fields)  # type: ignore[arg-type]


class Desk:
    """A router with nodes that answer only when told to."""

    def __init__(self, *nodes: NodeSpec, classes: Iterable[SloClass] = DEFAULT_CLASSES) -> None:
        self.router = Router(classes)
        self.now = 1.0
        self.log: list[Action] = []
        for spec in nodes:
            self.tell(NodeJoined(spec))

    def tell(self, event: Event, at: float | None = None) -> list[Action]:
        self.now = self.now if at is None else at
        actions = self.router.handle(event, self.now)
        self.log += actions
        return actions

    def submit(self, request: Request, at: float | None = None) -> list[Action]:
        return self.tell(Submit(request), at)

    def passes(self, actions: list[Action] | None = None) -> list[Pass]:
        return [action.work for action in (self.log if actions is None else actions) if isinstance(action, SendPass)]

    def start(self, work: Pass, at: float | None = None) -> list[Action]:
        return self.tell(WorkStarted(work.node_id, work.epoch, work.id), at)

    def finish(self, work: Pass, at: float | None = None, **fields: object) -> list[Action]:
        measured = float(fields.pop("measured_s", work.predicted_s))  # type: ignore[arg-type]
        event = WorkDone(work.node_id, work.epoch, work.id, measured, **fields)  # type: ignore[arg-type]
        return self.tell(event, self.now + measured if at is None else at)

    def answered(self) -> list[str]:
        return [action.request_id for action in self.log if isinstance(action, Answer)]

    def refused(self) -> dict[str, str]:
        return {action.request_id: action.error.code for action in self.log if isinstance(action, Refuse)}

    def admitted(self) -> list[str]:
        return [action.request_id for action in self.log if isinstance(action, Admit)]


class Returning(Trace):
    """Whoever is told to come back does, at that time, until admitted; requests named `probe...` don't."""

    def closed(self, outcome: Outcome, now_s: float) -> Iterable[tuple[float, Request]]:
        request = outcome.request
        if outcome.state == "refused" and outcome.retry_after_s is not None and not request.id.startswith("probe"):
            yield now_s + outcome.retry_after_s, like(request, request.id + "+")


def play(
    entries: list[tuple[float, Request]],
    nodes: list[NodeSpec],
    *,
    noise: float = 0.0,
    until: float = 1e6,
    classes: Iterable[SloClass] = DEFAULT_CLASSES,
    seed: int = 0,
    truths: dict[str, Truth] | None = None,
    plans: list[NodePlan] | None = None,
    returning: bool = False,
) -> tuple[dict[str, Outcome], Simulation]:
    """Run a trace on honest virtual nodes (or on `plans`) to its end."""
    if plans is None:
        plans = [
            NodePlan(spec, (truths or {}).get(spec.id, Truth(spec.cost, spec.round_cost, noise=noise)))
            for spec in nodes
        ]
    workload = Returning(entries) if returning else Trace(entries)
    simulation = Simulation(Router(classes), plans, workload, classes, seed=seed)
    simulation.run(until)
    return simulation.outcomes, simulation


def like(request: Request, name: str) -> Request:
    """The same request from the same kind of caller, under another name and view."""
    return msgspec.structs.replace(request, id=name, view_key=f"view-{name}" if request.view_key else "")


__all__ = ["FAST", "ROUND", "SLOW", "Desk", "Limits", "Returning", "generate", "like", "node", "play", "score"]
