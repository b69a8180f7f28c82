"""What the published systems know of time: a profile per application, batch size and worker; no tokens, no caches.

They serve *models* of fixed input, each with a target of its own; requests of one model are alike, so the batch size
alone says how long a batch takes. The nearest thing here is a class: the requests of one (model, class) form one
*application* with a line of its own, batches never mix applications, and every worker is profiled for each of them when
it joins, with the application's mean request. That is more than the papers have, where one profile serves all devices.
"""

from bisect import insort

from mainspring.core.events import WorkDone
from mainspring.core.nouns import SloClass
from mainspring.simulate.policies.base import FAR_S, Baseline, Waiting, Worker

Entry = tuple[float, int, Waiting]
DEPTH = 32
"""How many requests that this worker can't take (no slot, too long a view) a batch steps over."""


class Application:
    """One line, in order of deadlines, and the mean request, with which new workers are profiled."""

    def __init__(self) -> None:
        self.line: list[Entry] = []
        self.count = self.view = self.rows = 0

    def add(self, due_s: float, item: Waiting) -> None:
        insort(self.line, (due_s, item.seq, item))
        self.count += 1
        self.view += item.request.view_tokens
        self.rows += item.rows

    def take(self, entries: list[Entry]) -> None:
        gone = {entry[1] for entry in entries}
        self.line = [entry for entry in self.line if entry[1] not in gone]


class Profiled(Baseline):
    """Lines and profiles; `estimate` is what a policy plans with."""

    def __init__(self, classes: tuple[SloClass, ...]) -> None:
        super().__init__(classes)
        self.applications: dict[tuple[str, str], Application] = {}

    def aim_s(self, item: Waiting) -> float:
        """The deadline to plan for."""
        return item.due_s

    def estimate(self, worker: Worker, name: tuple[str, str], size: int) -> float:
        """Seconds of a batch of so many."""
        raise NotImplementedError

    def enter(self, item: Waiting, now_s: float) -> None:
        name = (item.request.model, item.slo.name)
        self.applications.setdefault(name, Application()).add(self.aim_s(item), item)

    def predict(self, worker: Worker, batch: list[Waiting]) -> float:
        return self.estimate(worker, (batch[0].request.model, batch[0].slo.name), len(batch))

    def profile(self, worker: Worker, name: tuple[str, str], size: int) -> float:
        """Measured at join: so many mean requests of the application."""
        app = self.applications[name]
        mean_view, mean_rows = app.view / app.count, app.rows / app.count
        cost = worker.spec.cost
        return (cost.c0 + size * (cost.c1 * mean_view + cost.c2 * mean_rows)) * worker.spec.busy_neighbour

    def drop_late(self, now_s: float) -> None:
        """What no worker could answer in time even alone."""
        for name, app in self.applications.items():
            best = min(
                (
                    self.estimate(w, name, 1) + w.spec.network_s
                    for w in self.workers.values()
                    if w.spec.model == name[0]
                ),
                default=0.0,
            )
            while app.line and (app.line[0][2].gone or app.line[0][0] < min(FAR_S / 2.0, now_s + best)):
                _, _, item = app.line.pop(0)
                if not item.gone:
                    self.refuse(item, late=True)

    def members(self, worker: Worker, app: Application, finish_s: float, size: int) -> list[Entry]:
        """The first `size` that may run here and are not due before `finish_s`."""
        taken: list[Entry] = []
        slots = 1
        for at, entry in enumerate(app.line):
            if len(taken) == size or at >= size + DEPTH:
                break
            item = entry[2]
            if item.gone or entry[0] < finish_s or not worker.serves(item):
                continue
            if item.request.is_lease:
                if not slots or not worker.has_slot(item):
                    continue
                slots -= 1
            taken.append(entry)
        return taken

    def launch(self, worker: Worker, app: Application, entries: list[Entry], now_s: float) -> None:
        app.take(entries)
        self.send(worker, [entry[2] for entry in entries], now_s)

    def measured(self, worker: Worker, event: WorkDone, batch: list[Waiting]) -> None:
        """A batch came back."""
