"""Generation slots after their prompt: first token, progress, end.

Admission promised time to first token and a rate, never a finish; a lease that failed before its first token is retried
from its place in the queue, one that failed later is told so.
"""

from mainspring.core.actions import Action, Answer
from mainspring.core.events import LeaseEnded, LeaseProgress, LeaseStarted
from mainspring.core.nodestate import NodeState
from mainspring.core.recovery import close, lose_lease
from mainspring.core.state import State


def on_event(
    state: State, node: NodeState, event: LeaseStarted | LeaseProgress | LeaseEnded, now_s: float
) -> list[Action]:
    lease = node.leases[event.request_id]
    job = lease.shard.job
    if isinstance(event, LeaseStarted):
        lease.live = True
        lease.since_s = now_s
        if not job.started and now_s > job.due_s:
            state.counters.answered_late += 1
        job.started = True
        return []
    lease.tokens = max(lease.tokens, min(event.tokens, lease.lease.max_tokens))
    if isinstance(event, LeaseProgress):
        return []
    for key, tokens in event.gained:
        state.gain(node, key, tokens, pending=False)
    if event.failed:
        actions = lose_lease(state, lease.shard)
    else:
        state.counters.answered += 1
        actions = [*close(state, job), Answer(job.request.id, (), False)]
    node.leases.pop(event.request_id, None)
    state.recap(node)
    state.touch_device(node)
    return actions
