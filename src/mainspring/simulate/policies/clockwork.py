"""Clockwork as published (OSDI 2020), after its controller: eager, one queue a batch size, never knowingly late.

- A batch's time is the p99 (of ten: the largest) of the last ten measured for its application, size and worker; before
  the first, what the worker measured when it joined. Sizes beyond 1 that took over 250 ms then are left out.
- A worker is sent work while it is busy for less than the lookahead (10 ms; 5 ms where the tightest target is under
  25 ms). One that is more than 10 ms late gets nothing.
- Per size a queue: its head leaves it once it can't finish in time in a batch of that size, so a request too late for
  8 may still fit 1. Applications go in order of required start (head's deadline less the time of the batch), and the
  one chosen runs the largest size its queue can fill. Who is too late for size 1 everywhere is dropped.
- It aims 5 ms ahead of the deadline (a tenth of the target where that is less: 5 ms of 10 would be unfair).

No test at arrival, no retry time. Where the publication keeps one profile for all devices, this keeps one for each.
"""

from collections import deque

from mainspring.core.events import WorkDone
from mainspring.core.nouns import SloClass
from mainspring.simulate.policies.base import Waiting, Worker
from mainspring.simulate.policies.profiled import Application, Entry, Profiled

SIZES = (16, 8, 4, 2, 1)
WINDOW = 10
LONGEST_BATCH_S = 0.25
LATE_S = 0.010


class Clockwork(Profiled):
    window = 8

    def __init__(self, classes: tuple[SloClass, ...]) -> None:
        super().__init__(classes)
        tightest = min((slo.target_s for slo in classes if slo.target_s), default=1.0)
        self.lookahead_s = 0.005 if tightest < 0.025 else 0.010
        self.windows: dict[tuple[str, int, tuple[str, str], int], deque[float]] = {}

    def aim_s(self, item: Waiting) -> float:
        return item.due_s - min(0.005, 0.1 * (item.slo.target_s or 1.0))

    def estimate(self, worker: Worker, name: tuple[str, str], size: int) -> float:
        window = self.windows.get((worker.spec.id, worker.spec.epoch, name, size))
        return max(window) if window else self.profile(worker, name, size)

    def measured(self, worker: Worker, event: WorkDone, batch: list[Waiting]) -> None:
        key = (worker.spec.id, worker.spec.epoch, (batch[0].request.model, batch[0].slo.name), len(batch))
        self.windows.setdefault(key, deque(maxlen=WINDOW)).append(event.measured_s)

    def decide(self, now_s: float) -> None:
        self.drop_late(now_s)
        sent = True
        while sent:
            ready = sorted(self.ready(now_s), key=lambda worker: (max(worker.free_s, now_s), worker.spec.id))
            sent = any(self.fill(worker, now_s) for worker in ready)
        heads = [app.line[0][0] for app in self.applications.values() if app.line]
        if heads:
            for worker in self.workers.values():
                if worker.held:
                    self.wake(max(now_s + 0.001, worker.free_s - self.lookahead_s))
            self.wake(max(min(heads), now_s + 0.001))

    def ready(self, now_s: float) -> list[Worker]:
        return [
            worker
            for worker in self.idle()
            if worker.free_s < now_s + self.lookahead_s and not (worker.held and worker.held[0][2] < now_s - LATE_S)
        ]

    def fill(self, worker: Worker, now_s: float) -> bool:
        """The application that must start first, in the largest batch it can fill."""
        start = max(worker.free_s, now_s + worker.spec.network_s)
        best: tuple[float, Application, list[Entry]] | None = None
        for name, app in self.applications.items():
            if not app.line or worker.spec.model != name[0]:
                continue
            chosen = self.largest(worker, name, app, start)
            if chosen is not None and (best is None or chosen[0] < best[0]):
                best = (chosen[0], app, chosen[1])
        if best is None:
            return False
        self.launch(worker, best[1], best[2], now_s)
        return True

    def largest(
        self, worker: Worker, name: tuple[str, str], app: Application, start_s: float
    ) -> tuple[float, list[Entry]] | None:
        """(required start, members) of the largest size whose queue has enough."""
        for size in SIZES:
            if len(app.line) < size or (size > 1 and self.profile(worker, name, size) > LONGEST_BATCH_S):
                continue
            seconds = self.estimate(worker, name, size)
            members = self.members(worker, app, start_s + seconds, size)
            if len(members) == size and worker.fits([entry[2] for entry in members], 65_536):
                return members[0][0] - seconds, members
        return None
