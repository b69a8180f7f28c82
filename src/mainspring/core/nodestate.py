"""What the router believes of one node: its timeline, its cost, its keys, its leases.

`coef` predicts a pass started now (neighbour factor included); `pace` predicts a backlog (rounds between passes
included). `free_s` is when the held passes end; a late node's is infinite, so that it attracts nothing until it speaks.
"""

from mainspring.core.cost import CostFit
from mainspring.core.jobs import FOREVER, Held, Shard
from mainspring.core.nouns import Lease, NodeSpec

Coef = tuple[float, float, float, float]
GRACE_S = 0.010
"""Least overrun before a node counts as late; Clockwork pins its clocks at the same 10 ms."""


class LeaseState:
    __slots__ = ("heard_s", "lease", "live", "shard", "since_s", "timed", "tokens")

    def __init__(self, lease: Lease, shard: Shard) -> None:
        self.lease = lease
        self.shard = shard
        self.live = False
        self.since_s = self.heard_s = 0.0
        self.timed = False
        self.tokens = 0


class NodeState:
    __slots__ = (
        "above",
        "cap_s",
        "caps",
        "coef",
        "draining",
        "end_s",
        "epoch",
        "factor",
        "fit",
        "heard_s",
        "held",
        "id",
        "keys",
        "late",
        "leases",
        "left",
        "model",
        "net_s",
        "pace",
        "peers",
        "pending",
        "pinned",
        "pinned_s",
        "round_s",
        "spec",
        "wake_s",
    )  # fmt: skip

    def __init__(self, spec: NodeSpec) -> None:
        self.spec = spec
        self.id = spec.id
        self.model = spec.model
        self.epoch = spec.epoch
        self.net_s = spec.network_s
        self.fit = CostFit(spec.cost, spec.anchors)
        self.held: list[Held] = []
        self.pinned: list[Shard] = []
        self.pinned_s = 0.0
        self.keys: dict[str, int] = dict(spec.keys)
        self.pending: dict[str, int] = {}
        self.leases: dict[str, LeaseState] = {}
        self.peers: list[NodeState] = []
        self.draining = False
        self.late = False
        self.heard_s = 0.0
        self.wake_s = FOREVER
        self.end_s = 0.0
        self.cap_s = FOREVER
        self.caps: dict[int, float] = {}
        self.above: dict[int, float] = {}
        self.left: dict[int, float] = {}
        self.round_s = 0.0
        self.factor = 1.0
        self.coef: Coef = (0.0, 0.0, 0.0, 0.0)
        self.pace: Coef = self.coef
        self.refresh()

    def refresh(self) -> None:
        """After the cost, a neighbour or the leases changed."""
        spec = self.spec
        if self.peers:
            busy = any(peer.held or peer.leases for peer in self.peers)
            self.factor = spec.busy_neighbour if busy else spec.idle_neighbour
        else:
            self.factor = 1.0
        f, c = self.factor, self.fit.cost
        self.coef = (c.c0 * f, c.c1 * f, c.c2 * f, c.c3 * f)
        self.round_s = self.round_after(0, 0) * f
        if self.round_s > 0.0 and self.cap_s < FOREVER:
            stretch = 1.0 + self.round_s / max(self.cap_s, 1e-4)
            self.pace = (self.coef[0] * stretch, self.coef[1] * stretch, self.coef[2] * stretch, self.coef[3] * stretch)
        else:
            self.pace = self.coef

    def round_after(self, slots: int, context: int) -> float:
        """Seconds of a round with so many more slots and so much more context than now."""
        cost = self.spec.round_cost
        return 0.0 if cost is None else cost.seconds(len(self.leases) + slots, self.context() + context)

    def context(self) -> int:
        return sum(state.lease.prompt_tokens + state.tokens for state in self.leases.values())

    def token_s(self) -> float:
        """The tightest gap promised to a stream here."""
        return min((s.lease.token_s for s in self.leases.values() if s.lease.token_s is not None), default=FOREVER)

    def retime(self) -> None:
        """Chain the held passes: a known start counts from itself, an unknown one from arrival or the one before."""
        end = 0.0
        for held in self.held:
            start = held.started_s
            if start is None:
                start = max(end, held.sent_s + self.net_s) + self.round_s
            end = start + held.expected_s
        self.end_s = end

    def free_s(self, now_s: float) -> float:
        """When new work could start, behind what is held and pinned."""
        if self.late:
            return FOREVER
        return max(self.end_s, now_s + self.net_s) + self.pinned_s

    def overdue_s(self) -> float:
        """When silence about the first held pass becomes suspicious."""
        first = self.held[0]
        start = first.started_s
        if start is None:
            start = first.sent_s + self.net_s + self.round_s
        spread = 3.0 * (self.fit.late_ratio - 1.0) * first.expected_s
        return start + first.expected_s + max(GRACE_S, spread) + self.net_s

    def cached(self, shard: Shard) -> tuple[int, str]:
        """Tokens of the shard's view this node need not scan, and the key of the checkpoint it resumes from. A node
        may keep a prompt's beginning a little short of where its key says."""
        request = shard.job.request
        if shard.pin == self.id and shard.scanned:
            return shard.scanned, ""
        key = request.view_key
        if key and (key in self.pending or self.keys.get(key, 0) >= request.view_tokens):
            return request.view_tokens, key
        prefixes = request.prefix_keys
        if key and request.is_lease:
            prefixes = (*prefixes, (key, request.view_tokens))
        for prefix, tokens in reversed(prefixes):
            held = self.keys.get(prefix, self.pending.get(prefix, 0))
            if held and tokens <= request.view_tokens:
                return min(held, tokens), prefix
        return 0, ""

    def runs(self, shard: Shard) -> bool:
        """Hard conditions: numerics, view and branch length, one numerics class over the shards of a job."""
        request = shard.job.request
        spec = self.spec
        if shard.job.longest > spec.limits.pass_tokens:
            return False
        if not request.is_lease and request.view_tokens > spec.limits.view_tokens:
            return False
        if request.numerics and spec.numerics not in request.numerics:
            return False
        fixed = shard.job.numerics
        return fixed is None or fixed == spec.numerics
