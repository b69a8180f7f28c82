"""Precision and recall of refusals against an oracle that knows the future.

The oracle is the same world played again with refused requests admitted after all, each in its place. One alone nearly
always fits, since the margins are wider than one request, so singles say nothing. Therefore a random half of the
refused is admitted at once: the misses that this adds, among all requests of the class, are refusals that were right.
"""

from collections.abc import Callable, Iterable
from random import Random

from msgspec import Struct

from mainspring.core.actions import Action, Admit, Refuse
from mainspring.core.dispatch import feed
from mainspring.core.events import Event, Submit
from mainspring.core.jobs import Job
from mainspring.core.nouns import Request, SloClass
from mainspring.core.refusals import ContentionError
from mainspring.core.router import Router
from mainspring.core.sharding import cut
from mainspring.simulate.scenarios import World
from mainspring.simulate.simulation import Simulation


class Hindsight(Struct, frozen=True):
    precision: float
    recall: float
    refused: int
    missed: int
    sampled: int


class Lenient(Router):
    """Admits certain requests, whatever the forecast says."""

    def __init__(self, classes: Iterable[SloClass], request_ids: Iterable[str]) -> None:
        super().__init__(classes)
        self.request_ids = frozenset(request_ids)

    def handle(self, event: Event, now_s: float) -> list[Action]:
        actions = super().handle(event, now_s)
        if isinstance(event, Submit) and event.request.id in self.request_ids:
            refused = [a for a in actions if isinstance(a, Refuse) and a.request_id == event.request.id]
            if refused and isinstance(refused[0].error, ContentionError):
                actions = [a for a in actions if a is not refused[0]] + self._admit(event.request, now_s)
        return actions

    def _admit(self, request: Request, now_s: float) -> list[Action]:
        state = self.state
        state.counters.refused -= 1
        job = Job(request, state.classes[request.slo], now_s)
        model = state.models[request.model]
        cut(job, model.usable, state.next_seq())
        state.jobs[request.id] = job
        for shard in job.shards:
            state.enqueue(shard)
        state.at(now_s + (job.due_s - now_s) / 2.0, "expiry", job)
        return [Admit(request.id, job.due_s - now_s), *feed(state, model, now_s)]


def hindsight(build: Callable[[], World], slo: str, seed: int) -> Hindsight:
    """Of one class; `build` makes the same world every time."""
    world = build()
    base = Simulation(Router(world.classes), world.plans, world.load, world.classes, seed)
    base.run(world.horizon_s)
    mine = [o for o in base.outcomes.values() if o.slo.name == slo]
    refused = [o.request.id for o in mine if o.state == "refused"]
    missed = sum(o.state != "refused" and not o.in_time for o in mine)
    chosen = Random(seed).sample(refused, (len(refused) + 1) // 2)
    world = build()
    again = Simulation(Lenient(world.classes, chosen), world.plans, world.load, world.classes, seed)
    again.run(world.horizon_s)
    lost = sum(not o.in_time for o in again.outcomes.values() if o.slo.name == slo)
    # Refused in the second world, among the rest, count as lost too: somebody else took their place.
    added = lost - (missed + len(refused) - len(chosen))
    precision = min(1.0, max(0.0, added / len(chosen))) if chosen else 1.0
    rightly = precision * len(refused)
    recall = rightly / (rightly + missed) if rightly + missed else 1.0
    return Hindsight(precision, recall, len(refused), missed, len(chosen))
