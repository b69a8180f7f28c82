"""What every baseline needs and none is judged by: bookkeeping of nodes, passes, leases and answers.

A baseline decides in `decide(now_s)`, called after every event. It sees the same declared costs and reported times
as the router (profiles are the p99 ratio of the last ten passes, as Clockwork keeps them), the same cache reports, the
same slots. Nothing here is slower or blinder than the publication asks for.
"""

from collections import deque

from mainspring.core.actions import Action, Admit, Answer, OpenLease, Refuse, SendPass
from mainspring.core.events import (
    Cancel,
    Event,
    LeaseEnded,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    Submit,
    WorkDone,
    WorkFailed,
)
from mainspring.core.nouns import Lease, NodeSpec, Part, Pass, Request, SloClass
from mainspring.core.refusals import ContentionError, ExpiredError

FAR_S = 1e9
BATCH_TOKENS = 16_384
"""A usual setting for tokens batched at once; one longer request still runs alone."""


class Waiting:
    """A request with its absolute deadline; `node` once it is bound to one."""

    __slots__ = ("arrival_s", "due_s", "gone", "node", "request", "rows", "seq", "slo")

    def __init__(self, request: Request, slo: SloClass, now_s: float, seq: int) -> None:
        self.request, self.slo, self.arrival_s, self.seq = request, slo, now_s, seq
        soft = FAR_S if slo.target_s is None else now_s + slo.target_s
        self.due_s = min(soft, FAR_S if request.deadline_s is None else now_s + request.deadline_s)
        self.rows = sum(request.branches)
        self.gone = False
        self.node: str | None = None


class Worker:
    """A node as a baseline knows it."""

    def __init__(self, spec: NodeSpec) -> None:
        self.spec = spec
        self.held: list[tuple[Pass, list[Waiting], float]] = []
        self.free_s = 0.0
        self.ratios: deque[float] = deque(maxlen=10)
        self.keys = {key for key, _ in spec.keys}
        self.leases: dict[str, Waiting] = {}
        self.draining = False
        self.queue: deque[Waiting] = deque()
        self.tokens = 0

    @property
    def ratio(self) -> float:
        """p99 of the last ten: their maximum."""
        return max(self.ratios, default=1.0)

    def seconds(self, batch: list[Waiting]) -> float:
        """Predicted time of these requests in one pass, with what is cached."""
        view = rows = 0
        seen: set[str] = set()
        for item in batch:
            key = item.request.view_key
            if not key or (key not in self.keys and key not in seen):
                view += item.request.view_tokens
                seen.add(key)
            rows += item.rows
        return self.spec.cost.seconds(view, rows) * self.ratio * self.spec.busy_neighbour

    def serves(self, item: Waiting) -> bool:
        request, spec = item.request, self.spec
        return (
            spec.model == request.model
            and not self.draining
            and (request.is_lease or request.view_tokens <= spec.limits.view_tokens)
            and (not request.is_lease or spec.limits.slots > 0)
        )

    def has_slot(self, item: Waiting) -> bool:
        return not item.request.is_lease or len(self.leases) < self.spec.limits.slots

    def fits(self, batch: list[Waiting], tokens: int = BATCH_TOKENS) -> bool:
        if len(batch) == 1:
            return True
        total = sum(item.request.view_tokens + item.rows for item in batch)
        limits = self.spec.limits
        return len(batch) <= limits.pass_parts and total <= min(tokens, limits.pass_tokens)


class Baseline:
    window = 1
    """Passes a node may hold; the published systems that send ahead say so."""

    def __init__(self, classes: tuple[SloClass, ...]) -> None:
        self.classes = {slo.name: slo for slo in classes}
        self.workers: dict[str, Worker] = {}
        self.open: dict[str, Waiting] = {}
        self.timer_s: float | None = None
        self.seq = 0
        self.actions: list[Action] = []

    # What a policy defines.

    def enter(self, item: Waiting, now_s: float) -> None:
        raise NotImplementedError

    def decide(self, now_s: float) -> None:
        raise NotImplementedError

    def predict(self, worker: Worker, batch: list[Waiting]) -> float:
        """Seconds of these requests in one pass, as far as this policy can know."""
        return worker.seconds(batch)

    def measured(self, worker: Worker, event: WorkDone, batch: list[Waiting]) -> None:
        """A pass came back; for policies that keep profiles."""

    # What they share.

    def next_deadline(self) -> float | None:
        return self.timer_s

    def wake(self, when_s: float) -> None:
        """Ask to decide again then; `decide` says so anew every time."""
        if when_s < FAR_S / 2.0:
            self.timer_s = when_s if self.timer_s is None else min(self.timer_s, when_s)

    def handle(self, event: Event, now_s: float) -> list[Action]:
        self.actions = []
        self.timer_s = None
        if isinstance(event, Submit):
            self._submit(event.request, now_s)
        elif isinstance(event, WorkDone):
            self._done(event, now_s)
        elif isinstance(event, WorkFailed):
            self._requeue(self._take(event.node_id, event.pass_id), now_s)
        elif isinstance(event, LeaseEnded):
            self._lease_ended(event)
        elif isinstance(event, NodeJoined):
            self.workers[event.node.id] = Worker(event.node)
        elif isinstance(event, NodeLeft):
            self._left(event.node_id, now_s)
        elif isinstance(event, NodeDraining) and event.node_id in self.workers:
            self.workers[event.node_id].draining = True
        elif isinstance(event, Cancel) and event.request_id in self.open:
            self.open.pop(event.request_id).gone = True
        self.decide(now_s)
        return self.actions

    def serving(self, item: Waiting) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.serves(item)]

    def send(self, worker: Worker, batch: list[Waiting], now_s: float) -> None:
        self.seq += 1
        parts = []
        scanned: set[str] = set()
        shares = []
        for index, item in enumerate(batch):
            request, key = item.request, item.request.view_key
            cached = bool(key) and key in worker.keys
            if key in scanned:
                shares.append(index)
            start = request.view_tokens if cached or (key and key in scanned) else 0
            scanned.add(key)
            prefix = key if cached else ""
            parts.append(Part(request.id, 0, start, request.view_tokens, 0, len(request.branches), item.rows, key,
                              prefix, request.is_lease))  # fmt: skip
            if request.is_lease:
                worker.leases[request.id] = item
                lease = Lease(request.id, worker.spec.id, request.view_tokens, request.max_tokens, item.slo.token_s)
                self.actions.append(OpenLease(lease))
        seconds = self.predict(worker, batch)
        worker.free_s = max(worker.free_s, now_s + worker.spec.network_s) + seconds
        work = Pass(self.seq, worker.spec.id, worker.spec.epoch, tuple(parts), seconds, 1e6, 0, tuple(shares))
        worker.held.append((work, batch, worker.free_s))
        self.actions.append(SendPass(work))

    def refuse(self, item: Waiting, *, late: bool) -> None:
        item.gone = True
        self.open.pop(item.request.id, None)
        error = ExpiredError("too late") if late else ContentionError("no node")
        self.actions.append(Refuse(item.request.id, error))

    def idle(self) -> list[Worker]:
        return [w for w in self.workers.values() if len(w.held) < self.window and not w.draining]

    def _submit(self, request: Request, now_s: float) -> None:
        self.seq += 1
        item = Waiting(request, self.classes[request.slo], now_s, self.seq)
        self.open[request.id] = item
        if not self.serving(item):
            self.refuse(item, late=False)
            return
        self.actions.append(Admit(request.id, 0.0))
        self.enter(item, now_s)

    def _take(self, node_id: str, pass_id: int) -> list[Waiting]:
        worker = self.workers.get(node_id)
        if worker is None:
            return []
        for at, (work, batch, _) in enumerate(worker.held):
            if work.id == pass_id:
                del worker.held[at]
                return batch
        return []

    def _done(self, event: WorkDone, now_s: float) -> None:
        worker = self.workers.get(event.node_id)
        if worker is None:
            return
        work = next((work for work, _, _ in worker.held if work.id == event.pass_id), None)
        batch = self._take(event.node_id, event.pass_id)
        if work is not None:
            worker.ratios.append(event.measured_s / (work.predicted_s / worker.ratio))
            self.measured(worker, event, batch)
        worker.keys.update(key for key, _ in event.gained)
        worker.keys.difference_update(event.dropped)
        if not worker.held:
            worker.free_s = now_s
        for item in batch:
            worker.tokens -= item.request.view_tokens + item.rows
            if item.request.is_lease or item.gone:
                continue
            item.gone = True
            self.open.pop(item.request.id, None)
            self.actions.append(Answer(item.request.id, ((event.pass_id, 0),), now_s > item.due_s))

    def _lease_ended(self, event: LeaseEnded) -> None:
        worker = self.workers.get(event.node_id)
        if worker is None or event.request_id not in worker.leases:
            return
        item = worker.leases.pop(event.request_id)
        if not item.gone:
            item.gone = True
            self.open.pop(event.request_id, None)
            self.actions.append(Answer(event.request_id, (), False))

    def _left(self, node_id: str, now_s: float) -> None:
        worker = self.workers.pop(node_id, None)
        if worker is None:
            return
        lost = [item for _, batch, _ in worker.held for item in batch] + list(worker.queue)
        self._requeue(lost + [item for item in worker.leases.values() if item not in lost], now_s)

    def _requeue(self, items: list[Waiting], now_s: float) -> None:
        for item in items:
            if item.gone:
                continue
            if self.serving(item):
                self.enter(item, now_s)
            else:
                self.refuse(item, late=True)
