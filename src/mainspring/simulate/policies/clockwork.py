"""Clockwork as published (OSDI 2020): eager, earliest deadline first, per-batch strategies, never run late.

A node is sent work while it is busy for less than the lookahead (10 ms; 5 ms where the tightest target is under 25 ms).
The largest of the batch sizes 1 to 16 whose members all meet their deadline is taken; a request too late for batch 1 is
dropped. It aims 5 ms ahead of the deadline (a tenth of the target where that is less). A node more than 10 ms late gets
nothing. No test at arrival, no retry time. Profiles are per node, so mixed fleets are not held against it.
"""

from heapq import heappop, heappush

from mainspring.core.nouns import SloClass
from mainspring.simulate.policies.base import FAR_S, Baseline, Waiting, Worker

SIZES = (16, 8, 4, 2, 1)


class Clockwork(Baseline):
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
        return worker in self.serving(item) and worker.has_slot(item) and start_s + worker.seconds([item]) <= due_s

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
