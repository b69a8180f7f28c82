"""What the router wants done. The shell carries these out and decides nothing.

Every submitted request gets exactly one of `Answer` and `Refuse`, unless it was cancelled: then it gets neither.
"""

from msgspec import Struct

from mainspring.core.nouns import Lease, Pass
from mainspring.errors import MainspringError


class Admit(Struct, frozen=True):
    """`predicted_s` from now: the finish of a score, the first token of a generation."""

    request_id: str
    predicted_s: float


class Refuse(Struct, frozen=True):
    request_id: str
    error: MainspringError


class Answer(Struct, frozen=True):
    """`parts` of a score in branch order: (pass id, index of the part in it). Empty for a generation, which is `late`
    by its first token."""

    request_id: str
    parts: tuple[tuple[int, int], ...]
    late: bool = False


class SendPass(Struct, frozen=True):
    work: Pass


class DropPass(Struct, frozen=True):
    """Not started yet and nobody waits for it any more."""

    node_id: str
    pass_id: int


class OpenLease(Struct, frozen=True):
    """Before the first pass of its prompt; rounds begin when the pass that ends the prompt is done."""

    lease: Lease


class CloseLease(Struct, frozen=True):
    node_id: str
    request_id: str


class RejectNode(Struct, frozen=True):
    """Its declaration can't be used; it gets no work until it joins again."""

    node_id: str
    error: MainspringError


Action = Admit | Refuse | Answer | SendPass | DropPass | OpenLease | CloseLease | RejectNode
