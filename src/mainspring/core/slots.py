"""Slots for streams: whether a node has one now, when it will, and whether its streams keep their rate.

A class promises a longest mean gap between a stream's tokens (`SloClass.token_s`). A node takes one more stream only
while a round over all of them, every token reserved, is no longer than the tightest gap times the tokens that a round
yields. What does not fit waits for streams to end, and is refused at once where that would be too late.
"""

from collections.abc import Sequence

from mainspring.core.jobs import FOREVER, Job
from mainspring.core.nodestate import LeaseState, NodeState


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


def slot_s(node: NodeState, job: Job, now_s: float, before: float = 0.0) -> float:
    """When a slot that keeps every stream's rate is free, `before` other prompts being served first; infinite where not
    even an empty node has one.

    Leases are taken to run to their last token, a round in each of the tightest gaps, since passes fill the rest.
    Prompts that an empty node has no place for wait for whole streams such as this one."""
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
    leases = sorted(node.leases.values(), key=lambda state: (left(state), state.lease.request_id))
    fewest, most = 0, len(leases)
    while fewest < most:  # the fewest that have to end: one less never takes room away
        middle = (fewest + most) // 2
        if room(node, job, leases[middle:], like):
            most = middle
        else:
            fewest = middle + 1
    ended = each * max(1.0, left(leases[fewest - 1]) / cost.tokens) if fewest else 0.0
    return now_s + ended + waves * each * job.request.max_tokens / cost.tokens


def left(state: LeaseState) -> int:
    return state.lease.max_tokens - state.tokens
