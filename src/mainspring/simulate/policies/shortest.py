"""Shortest remaining first with ageing, as in PrefillOnly: predicted time less a share of the time waited.

Times are predicted anew for the node at hand, with what its cache holds. One central queue; an idle node takes the best
score and fills up to the batch limit in that order. Nothing is refused.
"""

from mainspring.core.nouns import SloClass
from mainspring.simulate.policies.base import Baseline, Waiting, Worker

AGEING = 0.05
"""Seconds of predicted work forgiven per second waited: a request of 1 s overtakes fresh ones of 0 s after 20 s."""


class ShortestFirst(Baseline):
    def __init__(self, classes: tuple[SloClass, ...]) -> None:
        super().__init__(classes)
        self.queue: list[Waiting] = []

    def enter(self, item: Waiting, now_s: float) -> None:
        self.queue.append(item)

    def decide(self, now_s: float) -> None:
        for worker in sorted(self.idle(), key=lambda worker: (worker.spec.cost.seconds(1000, 100), worker.spec.id)):
            if not self.queue:
                return
            self.fill(worker, now_s)

    def fill(self, worker: Worker, now_s: float) -> None:
        self.queue = [item for item in self.queue if not item.gone]
        cost, keys = worker.spec.cost, worker.keys

        def score(item: Waiting) -> tuple[float, int]:
            request = item.request
            view = 0 if request.view_key and request.view_key in keys else request.view_tokens
            return cost.seconds(view, item.rows) - AGEING * (now_s - item.arrival_s), item.seq

        batch: list[Waiting] = []
        for item in sorted(self.queue, key=score):
            if not worker.has_slot(item) or not worker.serves(item):
                continue
            if not worker.fits([*batch, item]):
                break
            batch.append(item)
            if item.request.is_lease:
                break
        if batch:
            taken = set(map(id, batch))
            self.queue = [item for item in self.queue if id(item) not in taken]
            self.send(worker, batch, now_s)
