"""Slots for streams: whether a node has one now, when it will, and whether its streams keep their rate.

A class promises a longest mean gap between a stream's tokens (`SloClass.token_s`). A node takes one more stream only
while a round over all of them, every token reserved, is no longer than the tightest gap times the tokens that a round
yields. What does not fit waits for streams to end, and is refused at once where that would be too late.
"""

from collections import deque
from collections.abc import Sequence

from mainspring.core.events import PROGRESS_TOKENS
from mainspring.core.jobs import FOREVER, Job
from mainspring.core.nodestate import LeaseState, NodeState

CAUTION = 1.25
"""A stream's pace so far may be better than what is to come."""
REMEMBERED, ENOUGH = 64, 16
"""Streams of a model whose lengths are remembered, and how many tell something."""


def paced(node: NodeState, job: Job) -> bool:
    """An empty node, its neighbours idle, could keep this stream's rate at all."""
    cost, token_s = node.spec.round_cost, job.slo.token_s
    if cost is None or token_s is None:
        return cost is not None
    return cost.seconds(1, job.request.view_tokens + job.request.max_tokens) <= token_s * cost.tokens


def has_slot(node: NodeState, job: Job) -> bool:
    return room(node, job, [*node.leases.values()])


def room(node: NodeState, job: Job, leases: Sequence[LeaseState], like: int = 0) -> bool:
    """Whether the job's stream runs beside `leases` and `like` more such as itself: slots, memory, everybody's rate."""
    limits, cost, request = node.spec.limits, node.spec.round_cost, job.request
    count = len(leases) + like + 1
    if cost is None or count > limits.slots:
        return False
    reserved = sum(each.lease.prompt_tokens + each.lease.max_tokens for each in leases)
    reserved += (like + 1) * (request.view_tokens + request.max_tokens)
    if reserved > limits.context_tokens:
        return False
    gaps = [each.lease.token_s for each in leases if each.lease.token_s is not None]
    if job.slo.token_s is not None:
        gaps.append(job.slo.token_s)
    return cost.seconds(count, reserved) * node.factor <= min(gaps, default=FOREVER) * cost.tokens


class Replies:
    """How much of the tokens they might have had streams of a model took: nine in ten of late took no more than
    `share`. Until enough have ended, all."""

    __slots__ = ("_shares", "share")

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=REMEMBERED)
        self.share = 1.0

    def note(self, tokens: int, most: int) -> None:
        self._shares.append(min(1.0, tokens / most))
        if len(self._shares) >= ENOUGH:
            self.share = sorted(self._shares)[len(self._shares) * 9 // 10]


def slot_s(node: NodeState, job: Job, now_s: float, before: float = 0.0, share: float = 1.0) -> float:
    """When a slot that keeps every stream's rate is free, `before` other prompts being served first; infinite where not
    even an empty node has one.

    Leases are taken to run to `share` of their tokens, at the pace that they were heard of, or, before that, a round in
    each of the tightest gaps, since passes fill the rest. Prompts that an empty node has no place for wait for whole
    streams such as this one."""
    cost, like, waves = node.spec.round_cost, int(before), 0
    if cost is None:
        return now_s
    while like and not room(node, job, (), like):
        like, waves = like // 2, 2 * waves + 1
    if not room(node, job, (), like):
        return FOREVER
    each = max(node.round_s, 1e-3)
    if node.token_s() < FOREVER:
        each = max(each, node.token_s() * cost.tokens)
    token_s, least_s = each / cost.tokens, node.round_s / cost.tokens
    ends = [(to_end_s(state, share, token_s, least_s), name, state) for name, state in node.leases.items()]
    ends.sort(key=lambda end: end[:2])
    leases = [state for _, _, state in ends]
    fewest, most = 0, len(leases)
    while fewest < most:  # the fewest that have to end: one less never takes room away
        middle = (fewest + most) // 2
        if room(node, job, leases[middle:], like):
            most = middle
        else:
            fewest = middle + 1
    ended = max(each, ends[fewest - 1][0]) if fewest else 0.0
    return now_s + ended + waves * each * share * job.request.max_tokens / cost.tokens


def to_end_s(state: LeaseState, share: float, token_s: float, least_s: float) -> float:
    """Seconds that the stream may still take, at `token_s` a token or quicker where it was seen to be, `least_s` at
    best; one that has taken more than its like is taken to end soon."""
    if state.tokens >= PROGRESS_TOKENS:
        token_s = min(token_s, max(least_s, CAUTION * (state.heard_s - state.since_s) / state.tokens))
    return token_s * max(1.0, share * state.lease.max_tokens - state.tokens)
