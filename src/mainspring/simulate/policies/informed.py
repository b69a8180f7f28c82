"""Ablation: the two published schedulers told what only our router knows.

Clockwork's and Symphony's rules, but a pass is predicted from our cost model of the node (tokens, rows, cached views)
instead of a profile, and one line in order of deadlines holds all classes, so that a batch is any mix that fits. What
they gain over `clockwork` and `deferred` is what the cost model gives to somebody else's scheduler.
"""

from heapq import heappop, heappush

from mainspring.core.nouns import SloClass
from mainspring.simulate.policies.base import FAR_S, Baseline, Waiting, Worker

SIZES = (16, 8, 4, 2, 1)
MAX_BATCH = 64


class ClockworkCosts(Baseline):
    """Eager, earliest deadline first, the largest of the batch sizes whose members all keep their deadline."""

    window = 8

    def __init__(self, classes: tuple[SloClass, ...]) -> None:
        super().__init__(classes)
        self.queue: list[tuple[float, int, Waiting]] = []
        tightest = min((slo.target_s for slo in classes if slo.target_s), default=1.0)
        self.lookahead_s = 0.005 if tightest < 0.025 else 0.010

    def enter(self, item: Waiting, now_s: float) -> None:
        aim = min(0.005, 0.1 * (item.slo.target_s or 1.0))
        heappush(self.queue, (item.due_s - aim, item.seq, item))

    def decide(self, now_s: float) -> None:
        while self.queue:
            workers = sorted(self.ready(now_s), key=lambda worker: (max(worker.free_s, now_s), worker.spec.id))
            if not any(self.fill(worker, now_s) for worker in workers):
                break
        for worker in self.workers.values():
            if worker.held and self.queue:
                self.wake(max(now_s + 0.001, worker.free_s - self.lookahead_s))
        if self.queue:
            self.wake(max(self.queue[0][0], now_s + 0.001))

    def ready(self, now_s: float) -> list[Worker]:
        return [
            worker
            for worker in self.idle()
            if worker.free_s < now_s + self.lookahead_s and not (worker.held and worker.held[0][2] < now_s - 0.010)
        ]

    def fill(self, worker: Worker, now_s: float) -> bool:
        start = max(worker.free_s, now_s + worker.spec.network_s)
        candidates: list[tuple[float, int, Waiting]] = []
        passed: list[tuple[float, int, Waiting]] = []
        while self.queue and len(candidates) < SIZES[0] and len(passed) < 32:
            entry = heappop(self.queue)
            due, _, item = entry
            if item.gone:
                continue
            if due < FAR_S / 2.0 and due < now_s + self.fastest(item):
                self.refuse(item, late=True)
            elif not self.may_run(worker, item, start, due):
                passed.append(entry)
            else:
                candidates.append(entry)
                if item.request.is_lease:
                    break
        size = self.largest(worker, candidates, start)
        for entry in passed + candidates[size:]:
            heappush(self.queue, entry)
        if size:
            self.send(worker, [entry[2] for entry in candidates[:size]], now_s)
        return size > 0

    def may_run(self, worker: Worker, item: Waiting, start_s: float, due_s: float) -> bool:
        return worker.serves(item) and worker.has_slot(item) and start_s + worker.seconds([item]) <= due_s

    def largest(self, worker: Worker, candidates: list[tuple[float, int, Waiting]], start_s: float) -> int:
        for size in SIZES:
            if size > len(candidates):
                continue
            batch = [entry[2] for entry in candidates[:size]]
            if worker.fits(batch, 65_536) and start_s + worker.seconds(batch) <= candidates[0][0]:
                return size
        return 0

    def fastest(self, item: Waiting) -> float:
        return min((w.seconds([item]) + w.spec.network_s for w in self.serving(item)), default=0.0)


class DeferredCosts(Baseline):
    """A batch leaves as late as its head's slack allows, on the fastest device that is free."""

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
            elif not worker.serves(item) or not worker.has_slot(item):
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
