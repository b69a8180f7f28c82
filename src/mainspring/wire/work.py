"""A pass and its answer: one stream a pass, opened by the router."""

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from mainspring.wire.errors import MessageError
from mainspring.wire.records import F32, MIB, U32, Count, HeldKeys, Key, Name, Row, Seconds, Text, are_few, ints, u32


class Fence(Row, frozen=True, kw_only=True):
    """Names one sending of one pass in one life of a node. A report with another one ends the link.

    `pass_id` is the core's, unique within the router's life; `attempt` counts sendings of the same members, the
    largest of them, from 0: for logs and for the nodes' own judgement of poison."""

    pass_id: Count
    attempt: Count
    epoch: Count


class Part(Row, frozen=True, kw_only=True):
    """A shard's next piece of work: scan `view_tokens` from `view_from` on, then fork the view for each branch.

    Where the scan starts: at nothing (`view_from` 0); at another part's end (`parent` >= 0: that part of this pass
    scans the view, this one has no tokens of it); at the checkpoint `prefix`; else at the shard's own checkpoint
    (`request`, `shard`), left by its chunk before. Lacking the checkpoint is `view_missing`.
    What the end is kept under: `view_key`, unless empty; and (`request`, `shard`) while `more` chunks will follow.
    `view_key` is given only where this part's end is the view's end, since whoever names that key builds on all of it.
    B branches: `branch_lengths` u32 [B], `branch_tokens` u32 [sum], `label_counts` u32 [B], `label_ids` u32 [sum].
    Of a lease's prompt: `chunk` tokens of it, which the node has from its `OpenLease`, and no other arrays; `lease`
    where it ends here, even with nothing left to scan, and rounds begin. `attempt` is the lease's.
    """

    request: Name
    shard: Count = 0
    view_from: Count = 0
    view_tokens: U32 = b""
    branch_lengths: U32 = b""
    branch_tokens: U32 = b""
    label_counts: U32 = b""
    label_ids: U32 = b""
    view_key: Key = ""
    prefix: Key = ""
    parent: Annotated[int, Meta(ge=-1, le=4096)] = -1
    more: bool = False
    lease: bool = False
    chunk: Count = 0
    attempt: Count = 0

    @property
    def view_to(self) -> int:
        return self.view_from + len(self.view_tokens) // 4 + self.chunk

    @property
    def of_lease(self) -> bool:
        return self.lease or self.chunk > 0

    @property
    def labels(self) -> int:
        """Logits this part answers with."""
        return len(self.label_ids) // 4

    def check(self) -> None:
        arrays = (self.view_tokens, self.branch_lengths, self.branch_tokens, self.label_counts, self.label_ids)
        if any(len(data) % 4 for data in arrays):
            raise MessageError("token ids come in whole u32", param="parts")
        check_branches(self.branch_lengths, self.branch_tokens, self.label_counts, self.label_ids)
        if self.of_lease and (any(arrays) or self.parent >= 0):
            raise MessageError("a part of a lease's prompt has no arrays and shares no view", param="parts")
        if self.parent >= 0 and (self.view_tokens or self.prefix):
            raise MessageError("a part that shares a view scans none", param="parts")


class Work(Row, frozen=True, kw_only=True):
    """A pass. Begun within `start_within_s` of leaving the router, or refused as `late`; never run late.

    The node deducts half its smallest round trip, and the age the link gives it. `order` counts the passes of a link
    from 1: the receiving link restores it, since streams overtake each other and chunks build on one another.
    """

    cap = 16 * MIB
    fence: Fence
    parts: Annotated[tuple[Part, ...], Meta(min_length=1, max_length=4096)]
    predicted_s: Seconds
    start_within_s: Seconds
    priority: int = 0
    order: Count = 0
    trace: Key = ""

    def check(self) -> None:
        for index, part in enumerate(self.parts):
            part.check()
            if part.parent >= index:
                raise MessageError("a shared view is scanned by an earlier part", param=f"parts[{index}].parent")


class Started(Row, frozen=True, kw_only=True):
    """`ago_s`: how long before this was sent the pass began."""

    fence: Fence
    ago_s: Seconds = 0.0


class Done(Row, frozen=True, kw_only=True):
    """Every part went well. `logits` f32 [sum of the parts' labels], part after part, branch after branch, finite.

    `measured_s` is device time after a sync; `waited_s` from arrival to begin. `gained`, `dropped`: checkpoint keys.
    """

    cap = 16 * MIB
    fence: Fence
    measured_s: Seconds
    logits: F32 = b""
    waited_s: Seconds = 0.0
    gained: HeldKeys = ()
    dropped: Annotated[tuple[Key, ...], Meta(max_length=4096)] = ()

    def check(self) -> None:
        if len(self.logits) % 4:
            raise MessageError("logits come in whole f32", param="logits")


FailReason = Literal[
    "late",  # not begun in time: nobody's fault
    "view_missing",  # a checkpoint the pass builds on is gone: nobody's fault; `dropped` names it
    "out_of_memory",  # the pass fails, the node goes on
    "not_finite",  # the model answered NaN or infinity
    "bad_work",  # token ids, lengths or checkpoints that make no sense for this model
    "cancelled",  # taken back before it began
    "draining",
    "engine",  # anything else that was raised
]


class Detail(Row, frozen=True, kw_only=True):
    """What is wrong with the part of this index, for whoever asked for it and for nobody else: it may quote them, so it
    is never logged. `param`: the field, as the node knows it."""

    index: Count
    code: Name
    message: Text
    param: Key = ""


class Failed(Row, frozen=True, kw_only=True):
    """`failed` are the indices of the parts at fault; none named means all. `logits` are those of the others, in order.

    `dropped` names checkpoints the router believed in and the node lacks. `message` is for logs: no user's text.
    `details` of parts whose work is bad.
    """

    cap = 16 * MIB
    fence: Fence
    reason: FailReason
    failed: Annotated[tuple[Count, ...], Meta(max_length=4096)] = ()
    logits: F32 = b""
    measured_s: Seconds = 0.0
    gained: HeldKeys = ()
    dropped: Annotated[tuple[Key, ...], Meta(max_length=4096)] = ()
    message: Text = ""
    details: Annotated[tuple[Detail, ...], Meta(max_length=4096)] = ()

    def check(self) -> None:
        if len(self.logits) % 4:
            raise MessageError("logits come in whole f32", param="logits")


class Cancel(Row, frozen=True, kw_only=True):
    """The opener of a pass, lease or request wants it no more. The stream still ends with its last message: whatever
    crossed this on the way, else `cancelled`."""

    reason: Key = ""


def check_branches(lengths: U32, tokens: U32, label_counts: U32, label_ids: U32) -> None:
    """MessageError unless the arrays of B branches agree and none is empty."""
    if len(lengths) != len(label_counts):
        raise MessageError("one label count a branch", param="label_counts")
    for each, data, name in ((lengths, tokens, "branch_tokens"), (label_counts, label_ids, "label_ids")):
        total, least = _measured(each)
        if 4 * total != len(data):
            raise MessageError("does not sum to its lengths", param=name)
        if not least:
            raise MessageError("no branch is empty", param=name)


def _measured(lengths: U32) -> tuple[int, int]:
    """Their sum and the least of them, 1 where there is none."""
    if are_few(lengths):
        few = ints(lengths)
        return sum(few), min(few, default=1)
    many = u32(lengths)
    return int(many.sum(dtype=np.uint64)), int(many.min())
