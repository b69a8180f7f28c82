"""What happens to the router. Frozen records; ages are durations before `now`, never timestamps.

Reports about work carry the node's epoch: what an earlier life of a node says is stale and counted, not believed.
"""

from msgspec import Struct

from mainspring.core.cost import Cost, RoundCost
from mainspring.core.nouns import Limits, NodeSpec, Request

Keys = tuple[tuple[str, int], ...]

PROGRESS_TOKENS = 32
"""A node reports a stream's progress at least so often."""


class Submit(Struct, frozen=True):
    request: Request


class Cancel(Struct, frozen=True):
    request_id: str


class NodeJoined(Struct, frozen=True):
    node: NodeSpec


class NodeLeft(Struct, frozen=True):
    """`crashed`: what it ran is suspect. The shell judges: a link that ended without a goodbye is a crash, unless it
    fell silent together with others, was replaced by the same process, or was ended for its certificate."""

    node_id: str
    epoch: int = 0
    crashed: bool = True


class NodeDraining(Struct, frozen=True):
    node_id: str
    epoch: int = 0


class NodeRefined(Struct, frozen=True):
    """What a node says of itself between passes; None: unchanged. `fresh`: `gained` is all it holds.

    New constants replace the declared ones; what was learnt from measured passes is learnt again on top of them.
    """

    node_id: str
    epoch: int
    cost: Cost | None = None
    round_cost: RoundCost | None = None
    anchors: tuple[tuple[int, int, int, float], ...] | None = None
    limits: Limits | None = None
    network_s: float | None = None
    gained: Keys = ()
    dropped: tuple[str, ...] = ()
    fresh: bool = False


class WorkStarted(Struct, frozen=True):
    node_id: str
    epoch: int
    pass_id: int
    ago_s: float = 0.0


class WorkDone(Struct, frozen=True):
    node_id: str
    epoch: int
    pass_id: int
    measured_s: float
    gained: Keys = ()
    dropped: tuple[str, ...] = ()


class WorkFailed(Struct, frozen=True):
    """`late`: not started in time, nobody's fault. `failed` are the indices of failed parts; empty means all.

    `view_missing`: a checkpoint that the failed parts build on is gone; nobody's fault either, and believed gone even
    where `dropped` does not name it. A part that built on nothing can't miss anything: that is a failure."""

    node_id: str
    epoch: int
    pass_id: int
    late: bool = False
    failed: tuple[int, ...] = ()
    view_missing: bool = False
    gained: Keys = ()
    dropped: tuple[str, ...] = ()


class LeaseStarted(Struct, frozen=True):
    """The first token left the node."""

    node_id: str
    epoch: int
    request_id: str
    attempt: int = 0


class LeaseProgress(Struct, frozen=True):
    """Every `PROGRESS_TOKENS` at least; a stream not heard of for several times that long is lost."""

    node_id: str
    epoch: int
    request_id: str
    tokens: int
    attempt: int = 0


class LeaseEnded(Struct, frozen=True):
    node_id: str
    epoch: int
    request_id: str
    tokens: int
    failed: bool = False
    gained: Keys = ()
    attempt: int = 0


class Timer(Struct, frozen=True):
    pass


Event = (
    Submit
    | Cancel
    | NodeJoined
    | NodeLeft
    | NodeDraining
    | NodeRefined
    | WorkStarted
    | WorkDone
    | WorkFailed
    | LeaseStarted
    | LeaseProgress
    | LeaseEnded
    | Timer
)
