"""Everything the router knows, with its indices kept in step. Decisions live elsewhere; this only remembers.

Invariants: a queued shard is in exactly one `DueQueue` and, if its view has a key, in `waiting`; `holders` mirrors the
nodes' keys; `hungry` are nodes that could take work now and found none.
"""

from heapq import heapify, heappop, heappush
from math import exp

from msgspec.structs import astuple

from mainspring.core.duequeue import DueQueue
from mainspring.core.jobs import FOREVER, Held, Job, Shard
from mainspring.core.nodestate import NodeState
from mainspring.core.nouns import Limits, SloClass, Work
from mainspring.core.promises import Promises
from mainspring.core.slots import Replies

TYPICAL_DECAY = 0.05
HEARD_TARGETS = 8.0
"""A class not heard of for so many of its targets no longer caps passes of its own priority."""
LONGEST_PASS_S = 60.0
LEAST_LEFT = 0.1
SHARE_OUT_S = 0.1
MAX_MODELS = 256
"""Models remembered at least; beyond, those without nodes and queue are forgotten, the longest empty first."""
DEAD_TIMERS = 256
"""Timers of settled jobs kept before the heap is looked through."""
MAX_KEYS = 65_536
"""Checkpoints believed of one node."""
MEMORY_S = 10.0
"""Time constant of the load each priority has been bringing."""


Shape = tuple[float, float]
"""Mean view tokens and rows of a class: `typical` of all that came, `taken` of what was admitted."""


class Counters:
    """Conserved: submitted = answered + refused + expired + failed + cancelled + open."""

    __slots__ = ("answered", "answered_late", "cancelled", "clock_steps", "expired", "failed", "passes", "refused",
                 "rejected", "retried", "stale", "submitted", "wasted_passes", "wasted_s")  # fmt: skip

    def __init__(self) -> None:
        self.submitted = self.answered = self.answered_late = self.refused = self.expired = self.failed = 0
        self.cancelled = self.retried = self.passes = self.stale = self.rejected = self.clock_steps = 0
        self.wasted_passes = 0
        self.wasted_s = 0.0

    def as_dict(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in self.__slots__}


class ModelState:
    """One model: its nodes, one queue and one ledger of promises a priority, highest first."""

    __slots__ = (
        "empty_s",
        "heard",
        "holders",
        "hungry",
        "load",
        "nodes",
        "priorities",
        "promises",
        "prompts",
        "queues",
        "replies",
        "shared_s",
        "taken",
        "tightest",
        "typical",
        "usable",
        "waiting",
        "widest",
    )

    def __init__(self, priorities: list[int]) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.priorities = priorities
        self.queues = {priority: DueQueue() for priority in priorities}
        self.promises = {priority: Promises() for priority in priorities}
        self.hungry: dict[str, NodeState] = {}
        self.holders: dict[str, dict[str, NodeState]] = {}
        self.waiting: dict[str, dict[Shard, None]] = {}
        self.typical: dict[str, Shape] = {}
        self.taken: dict[str, Shape] = {}
        self.heard: dict[str, float] = {}
        self.shared_s = -FOREVER
        self.empty_s = 0.0
        self.prompts = 0
        self.replies = Replies()
        self.load: dict[int, tuple[float, float, float]] = {}
        self.usable: list[NodeState] = []
        self.widest = self.tightest = Limits()

    def queued(self) -> int:
        count = 0
        for queue in self.queues.values():
            count += queue.total[0]
        return count

    def ahead(self, priority: int, key: tuple[float, int] | None) -> Work:
        """Work served before `key` of this priority (None: before a newcomer at its end)."""
        n = view = rows = pairs = 0
        for level in self.priorities:
            if level < priority:
                break
            queue = self.queues[level]
            work = queue.total if level > priority or key is None else queue.ahead(key)
            n, view, rows, pairs = n + work[0], view + work[1], rows + work[2], pairs + work[3]
        return n, view, rows, pairs

    def promised(self, priority: int, now_s: float) -> Work:
        n = view = rows = pairs = 0
        for level in self.priorities:
            if level < priority:
                break
            ledger = self.promises[level]
            ledger.prune(now_s)
            work = ledger.total
            n, view, rows, pairs = n + work[0], view + work[1], rows + work[2], pairs + work[3]
        return n, view, rows, pairs

    def note_load(self, priority: int, work: Work, now_s: float) -> None:
        """Admitted work of this priority, remembered with exponential decay."""
        last, view, rows = self.load.get(priority, (now_s, 0.0, 0.0))
        keep = exp((last - now_s) / MEMORY_S)
        self.load[priority] = (now_s, view * keep + work[1], rows * keep + work[2])

    def load_above(self, priority: int, now_s: float) -> tuple[float, float]:
        """View tokens and rows a second that higher priorities have been bringing and will go on to bring."""
        view = rows = 0.0
        for level, (last, v, r) in self.load.items():
            if level > priority:
                keep = exp((last - now_s) / MEMORY_S) / MEMORY_S
                view, rows = view + v * keep, rows + r * keep
        return view, rows

    def share_out(self, now_s: float) -> None:
        """What each node will have left for each priority, if the load above it goes on and the fastest nodes take it
        first: `node.left`, from 1 down to `LEAST_LEFT`. Renewed at most ten times a second."""
        if now_s < self.shared_s + SHARE_OUT_S:
            return
        self.shared_s = now_s
        order = sorted(self.usable, key=lambda node: (node.coef[1] + node.coef[2], node.id))
        for priority in self.priorities:
            view, rows = self.load_above(priority, now_s)
            todo = 1.0
            for node in order:
                need = node.coef[1] * view + node.coef[2] * rows
                taken = min(1.0 - LEAST_LEFT, todo * need)
                todo -= taken / need if need > 0.0 else todo
                node.left[priority] = 1.0 - taken

    def note_shape(self, slo: str, view: int, rows: int, now_s: float) -> None:
        self.heard[slo] = now_s
        follow(self.typical, slo, view, rows)

    def refresh(self) -> None:
        """After a node joined, left or began to drain. Beyond the widest limits is too large, not contended."""
        self.usable = [node for node in self.nodes.values() if not node.draining]
        if self.nodes:
            every = [node.spec.limits for node in self.nodes.values()]
            columns = list(zip(*(astuple(limits) for limits in every), strict=True))
            self.widest = Limits(*map(max, columns))
            self.tightest = Limits(*map(min, columns))


def follow(shapes: dict[str, Shape], slo: str, view: int, rows: int) -> None:
    """The running mean of a class's shapes, which starts at the first."""
    old = shapes.get(slo, (float(view), float(rows)))
    shapes[slo] = (old[0] + TYPICAL_DECAY * (view - old[0]), old[1] + TYPICAL_DECAY * (rows - old[1]))


class State:
    __slots__ = (
        "behind_s",
        "classes",
        "counters",
        "dead",
        "jobs",
        "models",
        "nodes",
        "now_s",
        "passes",
        "seq",
        "slo_order",
        "timers",
    )

    def __init__(self, classes: dict[str, SloClass]) -> None:
        self.classes = classes
        bound = [slo for slo in classes.values() if slo.target_s is not None]
        self.slo_order = sorted(bound, key=lambda slo: (slo.target_s or 0.0, slo.name))
        self.jobs: dict[str, Job] = {}
        self.nodes: dict[str, NodeState] = {}
        self.models: dict[str, ModelState] = {}
        self.passes: dict[int, tuple[NodeState, Held]] = {}
        self.timers: list[tuple[float, int, str, object]] = []
        self.counters = Counters()
        self.seq = 0
        self.dead = 0
        self.now_s = 0.0
        self.behind_s = 0.0

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    def model(self, name: str) -> ModelState:
        if name not in self.models:
            self.forget_models()
            self.models[name] = ModelState(sorted({slo.priority for slo in self.classes.values()}, reverse=True))
        return self.models[name]

    def forget_models(self) -> None:
        """Room for one more: nodes that offer ever new model keys must not fill the memory."""
        if len(self.models) < MAX_MODELS:
            return
        empty = [name for name, model in self.models.items() if not model.nodes and not model.queued()]
        empty.sort(key=lambda name: self.models[name].empty_s)
        for name in empty[: len(self.models) - MAX_MODELS + 1]:
            del self.models[name]

    def add_node(self, node: NodeState) -> None:
        model = self.model(node.model)
        self.nodes[node.id] = node
        model.nodes[node.id] = node
        model.refresh()
        for key in node.keys:
            model.holders.setdefault(key, {})[node.id] = node
        if node.spec.device_key:
            for other in self.nodes.values():
                if other is not node and other.spec.device_key == node.spec.device_key:
                    node.peers.append(other)
                    other.peers.append(node)
                    other.refresh()
        self.recap(node)

    def at(self, when_s: float, kind: str, subject: object) -> None:
        heappush(self.timers, (when_s, self.next_seq(), kind, subject))

    def forget_timers(self, job: Job) -> None:
        """A settled job's timer may lie a day ahead; once most are such, the heap is made anew without them."""
        if job.due_s < FOREVER:
            self.dead += 1
        if self.dead > DEAD_TIMERS and 2 * self.dead > len(self.timers):
            self.timers = [entry for entry in self.timers if not (isinstance(entry[3], Job) and entry[3].closed)]
            heapify(self.timers)
            self.dead = 0

    def drop_idle_timers(self) -> None:
        """Nobody is woken for a timer whose subject is over by then: nearly all are such, three a request. Each counts
        as one that came in time."""
        timers = self.timers
        while timers and self._is_idle(*timers[0]):
            heappop(timers)
            self.behind_s /= 2.0

    def _is_idle(self, when_s: float, _seq: int, kind: str, subject: object) -> bool:
        """It would find nothing to do, whatever happens until then."""
        if kind == "overdue":
            return isinstance(subject, Held) and subject.pass_id not in self.passes
        if kind == "expiry":
            return isinstance(subject, Job) and subject.closed
        return kind == "wake" and isinstance(subject, NodeState) and subject.wake_s != when_s

    def due_timers(self, now_s: float) -> list[tuple[str, object]]:
        due = []
        while self.timers and self.timers[0][0] <= now_s:
            _, _, kind, subject = heappop(self.timers)
            due.append((kind, subject))
        return due

    def enqueue(self, shard: Shard) -> None:
        """Into its node's pinned list where a scan is under way, else into the shared queue."""
        job = shard.job
        model = self.models[job.request.model]
        key = job.request.view_key
        shard.work = shard.measure(shared=bool(key) and (key in model.waiting or key in model.holders))
        node = model.nodes.get(shard.pin) if shard.pin else None
        if node is not None:
            node.pinned.append(shard)
            node.pinned.sort(key=lambda s: (-s.job.slo.priority, s.key, s.index))
            self.price_pinned(node)
            return
        shard.pin = None
        model.queues[job.slo.priority].add(shard)
        model.prompts += job.request.is_lease
        if job.request.view_key:
            model.waiting.setdefault(job.request.view_key, {})[shard] = None

    def dequeue(self, shard: Shard) -> None:
        job = shard.job
        model = self.models[job.request.model]
        if shard.queued:
            model.queues[job.slo.priority].remove(shard)
            model.prompts -= job.request.is_lease
            key = job.request.view_key
            if key:
                waiting = model.waiting[key]
                del waiting[shard]
                if not waiting:
                    del model.waiting[key]
        elif shard.pin:
            node = model.nodes.get(shard.pin)
            if node is not None and shard in node.pinned:
                node.pinned.remove(shard)
                self.price_pinned(node)

    def price_pinned(self, node: NodeState) -> None:
        c0, c1, c2, c3 = node.pace
        node.pinned_s = sum(c0 + c1 * s.work[1] + c2 * s.work[2] + c3 * s.work[3] for s in node.pinned)

    def gain(self, node: NodeState, key: str, tokens: int, *, pending: bool) -> None:
        """Beyond `MAX_KEYS` a new one is not believed: its view is scanned again, no more."""
        if len(node.keys) >= MAX_KEYS and key not in node.keys:
            return
        (node.pending if pending else node.keys)[key] = tokens
        self.models[node.model].holders.setdefault(key, {})[node.id] = node

    def drop(self, node: NodeState, key: str, *, pending: bool) -> None:
        (node.pending if pending else node.keys).pop(key, None)
        if key in node.keys or key in node.pending:
            return
        holders = self.models[node.model].holders
        if key in holders:
            holders[key].pop(node.id, None)
            if not holders[key]:
                del holders[key]

    def touch_device(self, node: NodeState) -> None:
        """Its neighbours run at another speed now that this node turned busy or idle."""
        for peer in node.peers:
            peer.refresh()

    def recap(self, node: NodeState) -> None:
        """The longest pass of each priority, by the targets this node can meet at all.

        A class of higher priority allows two fifths of its target (40 fixed costs where that is more, at most half), so
        that an urgent arrival can wait one out and still run beside others that waited; one of the same priority half
        of it, while it is heard of. Streams allow less. A node too slow for an urgent class is not bound by it.
        """
        model = self.models[node.model]
        c0, c1, c2, _ = node.coef
        above, own = dict.fromkeys(model.priorities, LONGEST_PASS_S), dict.fromkeys(model.priorities, LONGEST_PASS_S)
        for slo in self.slo_order:
            target = slo.target_s or 0.0
            view, rows = model.typical.get(slo.name, (1.0, 1.0))
            one = (c0 + c1 * view + c2 * rows) * node.fit.late_ratio
            room = target - 2.0 * node.net_s
            if one > room:
                continue
            half = max(min(room / 2.0, room - one), one, 2.0 * c0)
            lower = min(half, max(room * 0.4, 40.0 * c0))
            for priority in model.priorities:
                if priority < slo.priority:
                    above[priority] = min(above[priority], lower)
            if self.now_s - model.heard.get(slo.name, -FOREVER) < HEARD_TARGETS * target:
                own[slo.priority] = min(own[slo.priority], half)
        if node.leases:
            streams = max(node.token_s() * self.tokens_a_round(node) - node.round_s, 2.0 * c0)
            above = {priority: min(limit, streams) for priority, limit in above.items()}
        node.above = above
        node.caps = {priority: min(above[priority], own[priority]) for priority in above}
        node.cap_s = node.caps[model.priorities[0]]
        node.refresh()

    @staticmethod
    def tokens_a_round(node: NodeState) -> float:
        cost = node.spec.round_cost
        return 1.0 if cost is None else cost.tokens
