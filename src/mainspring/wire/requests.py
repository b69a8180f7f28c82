"""A request and its answer: one stream a request, opened by the client."""

from typing import Annotated

from msgspec import Meta

from mainspring.wire.errors import MessageError
from mainspring.wire.generation import Sampling
from mainspring.wire.records import (
    F32,
    MIB,
    U32,
    Age,
    Count,
    Hash,
    HeldKeys,
    Key,
    Name,
    Numerics,
    Record,
    Row,
    Seconds,
    Text,
)
from mainspring.wire.work import check_branches


class Submit(Row, frozen=True, kw_only=True):
    """A score (branches) or a generation (`max_tokens` and `sampling`). Shapes as in `Part`; the view comes whole.

    `request` is the client's, unique among its open ones; the router prefixes the client's name. `model` is a model
    key or an alias. `deadline_s` counts from when this left the client. `prefix_keys`: salted keys, shortest first.
    `salt` sets a generation's prompt apart from equal ones of other tenants.
    """

    cap = 16 * MIB
    request: Name
    model: Hash
    slo: Name
    view_tokens: U32
    branch_lengths: U32 = b""
    branch_tokens: U32 = b""
    label_counts: U32 = b""
    label_ids: U32 = b""
    view_key: Key = ""
    deadline_s: Seconds | None = None
    numerics: Annotated[tuple[Numerics, ...], Meta(max_length=4)] = ()
    max_tokens: Count = 0
    prefix_keys: HeldKeys = ()
    sampling: Sampling | None = None
    trace: Key = ""
    salt: Key = ""

    def check(self) -> None:
        arrays = (self.view_tokens, self.branch_lengths, self.branch_tokens, self.label_counts, self.label_ids)
        if any(len(data) % 4 for data in arrays):
            raise MessageError("token ids come in whole u32", param="view_tokens")
        check_branches(self.branch_lengths, self.branch_tokens, self.label_counts, self.label_ids)


class Accepted(Row, frozen=True, kw_only=True):
    """`predicted_s` from now: the finish of a score, the first token of a generation."""

    predicted_s: Seconds


class Refused(Record, frozen=True, kw_only=True):
    """The one answer of a request that gets no result, at once or later. `code` and `status` are those of the error
    (`core.refusals`), `cancelled` for one the client took back; `retry_after_s` None: do not retry."""

    code: Name
    message: Text
    status: Annotated[int, Meta(ge=400, le=599)] = 500
    retry_after_s: Seconds | None = None
    param: Key | None = None


class Result(Row, frozen=True, kw_only=True):
    """`logits` f32 [sum of labels], branch after branch as submitted, the same whatever the shards were.

    `queue_s` from arrival at the router to the first pass's begin, `device_s` summed over passes, `total_s` in the
    router; `nodes` that had a part in it, `cached_tokens` of the view that were not scanned."""

    cap = 16 * MIB
    logits: F32
    late: bool = False
    queue_s: Age = 0.0
    device_s: Age = 0.0
    total_s: Age = 0.0
    passes: Count = 0
    retries: Count = 0
    cached_tokens: Count = 0
    nodes: Annotated[tuple[Name, ...], Meta(max_length=1024)] = ()

    def check(self) -> None:
        if len(self.logits) % 4:
            raise MessageError("logits come in whole f32", param="logits")
