"""A request while the router owns it, and the shards it is cut into: the only mutable state of a request.

A shard waits in a queue or in a node's pinned list, is in flight, or is settled; a chunked one waits and flies. It
keeps its key (due, sequence) for life, so retried work keeps its place.
"""

from mainspring.core.nouns import Part, Request, SloClass, Work, pairs

FOREVER = float("inf")
PATIENCE_S = 3_600.0
"""Where nothing binds, work is ordered as if it were due an hour after it came: oldest first, and it ages."""


class Shard:
    """Branches `lo..hi` of a job still to be sent, with what has been scanned for them.

    `flight` are the passes under way (several where a long scan runs in chunks), `acked` the first branch without a
    result, `work` what the queue has counted.
    """

    __slots__ = ("acked", "deaths", "done", "failures", "flight", "hi", "index", "job", "key", "lates", "lo", "pin",
                 "queued", "rows", "scanned", "silences", "slack_s", "solo", "work")  # fmt: skip

    def __init__(self, job: "Job", index: int, lo: int, hi: int, seq: int) -> None:
        self.job = job
        self.index = index
        self.lo, self.hi = lo, hi
        self.rows = sum(job.request.branches[lo:hi])
        self.key = (job.order_s, seq)
        self.scanned = 0
        self.pin: str | None = None
        self.flight: list[int] = []
        self.acked = lo
        self.queued = False
        self.done = False
        self.solo = False
        self.deaths = 0
        self.failures = 0
        self.lates = 0
        self.silences = 0
        self.slack_s = FOREVER
        self.work: Work = self.measure()

    def measure(self, *, shared: bool = False) -> Work:
        """The first shard carries the view, unless others wait for it too or a node holds it; the others are expected
        to find it cached."""
        view = self.job.request.view_tokens
        if self.index or (shared and not self.scanned):
            return 1, 0, self.rows, self.rows * view
        return 1, view - self.scanned, self.rows, pairs(self.scanned, view, self.rows)

    def restart(self) -> None:
        """What was scanned went with the node."""
        self.scanned = 0
        self.pin = None
        self.flight.clear()
        self.lo = self.acked
        self.rows = sum(self.job.request.branches[self.lo : self.hi])
        self.work = self.measure()

    def extend(self, part: Part, node_id: str) -> None:
        """A chunk is on its way: what is left waits for the same node, which works in order."""
        self.scanned = part.view_to
        self.lo = part.branch_to
        self.rows = sum(self.job.request.branches[self.lo : self.hi])
        self.pin = node_id

    def ends_with(self, part: Part) -> bool:
        return part.view_to == self.job.request.view_tokens and part.branch_to == self.hi


class Job:
    """`due_s` is when it counts as missed (infinite where nothing binds); `order_s` is its place in the queue."""

    __slots__ = ("arrival_s", "attempts", "closed", "due_s", "hard_s", "late", "lease_node", "longest", "numerics",
                 "open", "order_s", "parts", "request", "rows", "shards", "slo", "started")  # fmt: skip

    def __init__(self, request: Request, slo: SloClass, now_s: float) -> None:
        self.request = request
        self.slo = slo
        self.arrival_s = now_s
        self.hard_s = FOREVER if request.deadline_s is None else now_s + request.deadline_s
        soft = FOREVER if slo.target_s is None else now_s + slo.target_s
        self.due_s = min(soft, self.hard_s)
        self.order_s = min(self.due_s, now_s + PATIENCE_S)
        self.shards: list[Shard] = []
        self.rows = sum(request.branches)
        self.longest = max(request.branches, default=0)
        self.open = 0
        self.closed = False
        self.started = False
        self.late = False
        self.attempts = 0
        self.numerics: str | None = None
        self.lease_node: str | None = None
        self.parts: dict[int, list[tuple[int, int]]] = {}

    def cut(self, pieces: list[tuple[int, int]], seq: int) -> None:
        self.shards = [Shard(self, index, lo, hi, seq) for index, (lo, hi) in enumerate(pieces)]
        self.open = len(self.shards)

    def join(self) -> tuple[tuple[int, int], ...]:
        """Results in branch order, whatever order they came in."""
        return tuple(part for index in sorted(self.parts) for part in self.parts[index])

    @property
    def work(self) -> Work:
        view = self.request.view_tokens
        return len(self.shards), view, self.rows, pairs(0, view, self.rows)


class Held:
    """A pass on a node. `expected_s` is its predicted time there; `shape` what the cost model is asked and taught."""

    __slots__ = ("abandon_s", "abandoned", "due_s", "expected_s", "factor", "members", "parts", "pass_id", "priority",
                 "sent_s", "shape", "started_s")  # fmt: skip

    def __init__(
        self,
        pass_id: int,
        members: list[Shard],
        parts: list[Part],
        shape: tuple[int, int, int],
        expected_s: float,
        factor: float,
        now_s: float,
    ) -> None:
        self.pass_id = pass_id
        self.members = members
        self.parts = parts
        self.shape = shape
        self.expected_s = expected_s
        self.factor = factor
        self.sent_s = now_s
        self.started_s: float | None = None
        self.priority = max(shard.job.slo.priority for shard in members)
        self.due_s = min(shard.job.due_s for shard in members)
        self.abandoned = False
        self.abandon_s = 0.0
