"""Deferred dispatch as published (Symphony, 2023): a batch leaves as late as its head's slack allows.

- A batch of b takes `l(b) = alpha*b + beta`, profiled beforehand: here of each application's mean request on each
  worker when it joins, times the largest ratio of measured to predicted of the worker's last ten passes. The
  publication has one profile for all devices and no correction; both are given to it because they help.
- For the head's deadline d and the largest feasible batch of b, the batch may leave from d - l(b + 1), when one more
  request could not join any more, to d - l(b). So few devices run full rather than all half-full.
- Batches whose latest moment comes first go first; the fastest free device takes them. A head too late for a batch
  of 1 is dropped. Work without a deadline fills devices that would idle.
"""

from bisect import bisect_left

from mainspring.simulate.policies.base import FAR_S, Worker
from mainspring.simulate.policies.profiled import Application, Entry, Profiled

MAX_BATCH = 64


class Deferred(Profiled):
    def estimate(self, worker: Worker, name: tuple[str, str], size: int) -> float:
        return self.profile(worker, name, size) * worker.ratio

    def decide(self, now_s: float) -> None:
        self.drop_late(now_s)
        for worker in sorted(self.idle(), key=lambda worker: (worker.spec.cost.seconds(1000, 100), worker.spec.id)):
            self.fill(worker, now_s)
        heads = [app.line[0][0] for app in self.applications.values() if app.line]
        if heads:
            self.wake(max(min(heads), now_s + 0.001))

    def fill(self, worker: Worker, now_s: float) -> None:
        """The most pressing batch whose window is open."""
        best: tuple[float, Application, list[Entry]] | None = None
        for name, app in self.applications.items():
            if not app.line or worker.spec.model != name[0]:
                continue
            batch = self.gather(worker, name, app, now_s)
            if not batch:
                continue
            opens, latest = self.window_s(worker, name, app, batch)
            if opens > now_s + 1e-9:
                self.wake(opens)
            elif best is None or latest < best[0]:
                best = (latest, app, batch)
        if best is not None:
            self.launch(worker, best[1], best[2], now_s)

    def gather(self, worker: Worker, name: tuple[str, str], app: Application, now_s: float) -> list[Entry]:
        """The head this worker can still serve in time, and as many after it as keep its deadline."""
        start = now_s + 2.0 * worker.spec.network_s
        batch = self.members(worker, app, start + self.estimate(worker, name, 1), MAX_BATCH)

        def too_large(size: int) -> bool:
            late = start + self.estimate(worker, name, size) > batch[0][0]
            return late or not worker.fits([entry[2] for entry in batch[:size]], 65_536)

        return batch[: max(1, bisect_left(range(1, len(batch) + 1), True, key=too_large))]

    def window_s(
        self, worker: Worker, name: tuple[str, str], app: Application, batch: list[Entry]
    ) -> tuple[float, float]:
        """When it may leave at the soonest and at the latest: at once where nothing binds or the pass is full."""
        due, size = batch[0][0], len(batch)
        network = 2.0 * worker.spec.network_s
        latest = due - self.estimate(worker, name, size) - network
        full = size == MAX_BATCH or size < min(len(app.line), MAX_BATCH) or size >= worker.spec.limits.pass_parts
        if full or due >= FAR_S / 2.0:
            return 0.0, latest
        return due - self.estimate(worker, name, size + 1) - network, latest
