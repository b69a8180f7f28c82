"""What is refused before anything runs. Every error names the request at fault and the limit."""

from collections.abc import Sequence

from mainspring.backend.protocol import Limits
from mainspring.engine.work import Branch, Segment, Tokens, Work
from mainspring.errors import InputError, TooLargeError


def check_work(limits: Limits, work: Work, where: str) -> None:
    check_context(limits, len(work.view), work.branches, where)
    check_tokens(limits, work.view, work.branches, where)


def check_segment(limits: Limits, segments: Sequence[Segment], index: int, where: str) -> None:
    """Also that it begins somewhere, and where that is an earlier segment, at its end."""
    segment = segments[index]
    if segment.parent >= index:
        raise InputError("shares the view of a later segment", param=where)
    if segment.parent >= 0:
        parent = segments[segment.parent]
        if len(segment.tokens) or segment.resume is not None or segment.start != parent.end:
            raise InputError(f"does not begin where segment {segment.parent} ends", param=where)
    elif (segment.start > 0) != (segment.resume is not None):
        raise InputError("begins at nothing or at a checkpoint", param=where)
    if segment.take and segment.resume is None:
        raise InputError("there is no checkpoint to move on", param=where)
    check_context(limits, segment.end, segment.branches, where)
    check_tokens(limits, segment.tokens, segment.branches, where)


def check_context(limits: Limits, view_tokens: int, branches: Sequence[Branch], where: str) -> None:
    longest = max((len(branch.tokens) for branch in branches), default=0)
    if view_tokens + longest > limits.context_tokens:
        raise TooLargeError(
            f"view of {view_tokens} tokens and a branch of {longest} exceed the model's context of "
            f"{limits.context_tokens} tokens",
            limit=limits.context_tokens,
            actual=view_tokens + longest,
            param=where,
        )


def check_tokens(limits: Limits, view: Tokens, branches: Sequence[Branch], where: str) -> None:
    for j, branch in enumerate(branches):
        if not len(branch.tokens) or not len(branch.label_ids):
            raise InputError("a branch needs at least one token and one label", param=f"{where}.branches[{j}]")
    arrays = [view, *(a for branch in branches for a in (branch.tokens, branch.label_ids))]
    top = max((int(a.max()) for a in arrays if len(a)), default=0)
    low = min((int(a.min()) for a in arrays if len(a)), default=0)
    if top >= limits.vocab_size or low < 0:
        raise InputError(
            f"token id {top if low >= 0 else low} is outside the model's vocabulary of {limits.vocab_size}",
            param=where,
        )
