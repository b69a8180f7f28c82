"""The router's nouns: shapes and ids only, never tokens.

A *request* asks for branches of one view (score) or for tokens after a prompt (generate). It is cut into *shards*; a
node runs a *pass* of *parts*, one part a shard's next piece of work. A *lease* is a generation slot. All times are
float seconds; on requests and passes they are durations, so no clock is shared with anyone.
"""

from math import isfinite

from msgspec import Struct

from mainspring.core.cost import Cost, RoundCost
from mainspring.core.refusals import BadNodeError, BadShapeError

Work = tuple[int, int, int, int]
"""Shards, view tokens still to scan, branch rows, attention pairs: integers, so sums are conserved exactly."""

NO_WORK: Work = (0, 0, 0, 0)
GRID = 64
"""Chunks of a prompt end at multiples of so many tokens."""


class SloClass(Struct, frozen=True):
    """`target_s` None: only an explicit deadline binds. `token_s` is the longest gap between a stream's rounds."""

    name: str
    priority: int
    weight: float
    target_s: float | None
    token_s: float | None = None

    def check(self) -> None:
        if not (isfinite(self.weight) and self.weight >= 0.0):
            raise BadShapeError("must be finite and not negative", param="weight")
        for name in ("target_s", "token_s"):
            value = getattr(self, name)
            if value is not None and not (isfinite(value) and value > 0.0):
                raise BadShapeError("must be finite and above zero", param=name)


DEFAULT_CLASSES = (
    SloClass("interactive", 2, 4.0, 1.0, 0.1),
    SloClass("standard", 1, 2.0, 10.0, 0.25),
    SloClass("batch", 0, 1.0, None, None),
)


class Request(Struct, frozen=True, kw_only=True):
    """Score when `max_tokens` is 0: a view and its branches. Generate otherwise: the view is the prompt.

    `prefix_keys` are the prompt's salted (key, tokens) pairs, shortest first; `deadline_s` counts from submission.
    """

    id: str
    model: str
    slo: str = "standard"
    view_tokens: int
    branches: tuple[int, ...] = ()
    view_key: str = ""
    deadline_s: float | None = None
    max_tokens: int = 0
    prefix_keys: tuple[tuple[str, int], ...] = ()
    numerics: tuple[str, ...] = ()

    @property
    def is_lease(self) -> bool:
        return self.max_tokens > 0

    @property
    def tokens(self) -> int:
        """Tokens that count as goodput when answered in time."""
        return self.view_tokens + sum(self.branches) + self.max_tokens

    def check(self) -> None:
        if self.view_tokens < 1:
            raise BadShapeError("must be at least 1", param="view_tokens")
        if self.max_tokens < 0:
            raise BadShapeError("must not be negative", param="max_tokens")
        if not self.is_lease and not self.branches:
            raise BadShapeError("a score needs at least one branch", param="branches")
        if self.is_lease and self.branches:
            raise BadShapeError("a generation has no branches", param="branches")
        if self.branches and min(self.branches) < 1:
            raise BadShapeError("each needs at least one row", param="branches")
        if self.deadline_s is not None and not isfinite(self.deadline_s):
            raise BadShapeError("must be finite", param="deadline_s")
        if any(tokens < 1 for _, tokens in self.prefix_keys):
            raise BadShapeError("each needs at least one token", param="prefix_keys")


class Limits(Struct, frozen=True):
    """What one pass may hold and what the node's memory holds between passes: `view_tokens` of a scored view,
    `context_tokens` of all streams together, `stream_tokens` (prompt and reply) of each."""

    pass_tokens: int = 65_536
    pass_parts: int = 256
    view_tokens: int = 262_144
    slots: int = 0
    context_tokens: int = 1 << 40
    stream_tokens: int = 1 << 40


class NodeSpec(Struct, frozen=True, kw_only=True):
    """One model on one device, as declared when it joins. A higher `epoch` is a later life of the same node."""

    id: str
    model: str
    cost: Cost
    round_cost: RoundCost | None = None
    epoch: int = 0
    numerics: str = "bf16"
    device_key: str = ""
    idle_neighbour: float = 1.0
    busy_neighbour: float = 1.0
    limits: Limits = Limits()
    network_s: float = 0.001
    anchors: tuple[tuple[int, int, int, float], ...] = ()
    """Join measurements: (view tokens, rows, attention pairs, measured seconds)."""
    keys: tuple[tuple[str, int], ...] = ()

    def check(self) -> None:
        self.cost.check()
        if self.round_cost is not None:
            self.round_cost.check()
        limits = self.limits
        tokens = (limits.pass_tokens, limits.view_tokens, limits.context_tokens, limits.stream_tokens)
        if min(*tokens, limits.pass_parts) < 1:
            raise BadNodeError("every limit must be at least 1", param="limits")
        if limits.slots < 0 or (limits.slots and self.round_cost is None):
            raise BadNodeError("slots need a round cost", param="limits.slots")
        for name in ("idle_neighbour", "busy_neighbour"):
            if not 1.0 <= getattr(self, name) < 100.0:
                raise BadNodeError("must be from 1 to 100", param=name)
        if not 0.0 <= self.network_s < 60.0:
            raise BadNodeError("must be from 0 to 60", param="network_s")
        if any(min(shape) < 0 for *shape, _ in self.anchors):
            raise BadNodeError("shapes must not be negative", param="anchors")


class Part(Struct, frozen=True):
    """A shard's next piece of work in a pass: scan the view from `view_from` to `view_to`, then these branches."""

    request_id: str
    shard: int
    view_from: int
    view_to: int
    branch_from: int
    branch_to: int
    rows: int
    view_key: str = ""
    prefix: str = ""
    """Key of the checkpoint to resume from; empty where the scan starts at 0 or the shard's own checkpoint."""
    opens_lease: bool = False
    more: bool = False
    """Further chunks of the shard follow: the node keeps where this one ends."""

    @property
    def scan(self) -> int:
        return self.view_to - self.view_from


class Pass(Struct, frozen=True):
    """What a node runs at once. It must start within `start_within_s` of arriving or come back as late."""

    id: int
    node_id: str
    epoch: int
    parts: tuple[Part, ...]
    predicted_s: float
    start_within_s: float
    priority: int
    shares: tuple[int, ...] = ()
    """Indices of parts whose view another part of the pass scans: they wait inside the pass, at no view cost."""

    @property
    def tokens(self) -> int:
        return sum(part.scan + part.rows for part in self.parts)


class Lease(Struct, frozen=True):
    """A generation slot. `token_s` None: no rate promised. `attempt` counts the slots this request has had before:
    reports carry it, so what is said of an earlier one is not believed of this."""

    request_id: str
    node_id: str
    prompt_tokens: int
    max_tokens: int
    token_s: float | None
    attempt: int = 0


def pairs(view_from: int, view_to: int, rows: int) -> int:
    """Attention pairs of scanning `view_from..view_to` and of `rows` reading the whole of it: v^2/2 + b*v."""
    return (view_to * view_to - view_from * view_from) // 2 + rows * view_to
