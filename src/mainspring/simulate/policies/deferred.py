"""Deferred dispatch as in Symphony: a batch leaves as late as its head's slack allows, on the first free device.

For the head's deadline d and the largest feasible batch of b, the batch may leave from d - l(b + 1), when one more
request could not join any more, to d - l(b). So few devices run full rather than all half-full. A head too late for
batch 1 is dropped. Work without a deadline fills devices that would idle.
"""

from heapq import heappop, heappush

from mainspring.core.nouns import SloClass
from mainspring.simulate.policies.base import FAR_S, Baseline, Waiting, Worker

MAX_BATCH = 64


class Deferred(Baseline):
    def __init__(self, classes: tuple[SloClass, ...]) -> None:
        super().__init__(classes)
        self.queue: list[tuple[float, int, Waiting]] = []

    def enter(self, item: Waiting, now_s: float) -> None:
        heappush(self.queue, (item.due_s, item.seq, item))

    def decide(self, now_s: float) -> None:
        for worker in sorted(self.idle(), key=lambda worker: (worker.spec.cost.seconds(1000, 100), worker.spec.id)):
            self.fill(worker, now_s)
        if self.queue:
            self.wake(max(self.queue[0][0], now_s + 0.001))

    def fill(self, worker: Worker, now_s: float) -> None:
        """Take the head and whoever fits under its deadline; leave only once the window has opened."""
        start = now_s + worker.spec.network_s
        batch: list[tuple[float, int, Waiting]] = []
        passed: list[tuple[float, int, Waiting]] = []
        full = False
        while self.queue and len(batch) < MAX_BATCH and len(passed) < 32 and not full:
            entry = heappop(self.queue)
            due, _, item = entry
            if item.gone:
                continue
            limit = batch[0][0] if batch else due
            grown = [e[2] for e in batch] + [item]
            if due < FAR_S / 2.0 and due < now_s + self.fastest(item):
                self.refuse(item, late=True)
            elif worker not in self.serving(item) or not worker.has_slot(item):
                passed.append(entry)
            elif start + worker.seconds(grown) + worker.spec.network_s > limit or not worker.fits(grown, 65_536):
                passed.append(entry)
                full = bool(batch)
            else:
                batch.append(entry)
                full = item.request.is_lease
        leave = self.opens(worker, batch, full)
        if batch and leave <= now_s + 1e-9:
            self.send(worker, [entry[2] for entry in batch], now_s)
        else:
            passed += batch
            if batch:
                self.wake(leave)
        for entry in passed:
            heappush(self.queue, entry)

    def opens(self, worker: Worker, batch: list[tuple[float, int, Waiting]], full: bool) -> float:
        """d - l(b + 1), one more taken to be of the mean size; at once where nothing binds or the pass is full."""
        if not batch or full or batch[0][0] >= FAR_S / 2.0:
            return 0.0
        items = [entry[2] for entry in batch]
        one = worker.seconds(items) - worker.spec.cost.c0
        return batch[0][0] - worker.seconds(items) - one / len(items) - 2.0 * worker.spec.network_s

    def fastest(self, item: Waiting) -> float:
        return min((w.seconds([item]) + 2.0 * w.spec.network_s for w in self.serving(item)), default=0.0)
