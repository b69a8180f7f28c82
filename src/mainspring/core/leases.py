"""Generation slots after their prompt: first token, progress, end.

Admission promised time to first token and a rate, never a finish; a lease that failed before its first token is retried
from its place in the queue, one that failed later is told so. Nobody waits for ever for a stream: one not heard of for
five times as long as its reports may be apart is taken for lost, and a node that said nothing else meanwhile is late.
With nothing to answer for it might never speak again, so half a minute later it is given work to show that it lives.
"""

from mainspring.core.actions import Action, Answer
from mainspring.core.agenda import DEFAULT_GAP_S
from mainspring.core.dispatch import feed, wake
from mainspring.core.events import PROGRESS_TOKENS, LeaseEnded, LeaseProgress, LeaseStarted
from mainspring.core.nodestate import LeaseState, NodeState
from mainspring.core.nouns import Lease
from mainspring.core.recovery import close, lose_lease
from mainspring.core.state import State

SILENT_REPORTS = 5
LEAST_SILENCE_S = 10.0
ASK_AGAIN_S = 30.0
"""After this a node that is late for its streams alone is offered work again."""


def on_event(
    state: State, node: NodeState, event: LeaseStarted | LeaseProgress | LeaseEnded, now_s: float
) -> list[Action]:
    lease = node.leases[event.request_id]
    job = lease.shard.job
    if isinstance(event, LeaseStarted):
        lease.live = True
        lease.since_s = now_s
        listen(state, lease, now_s)
        if not job.started and now_s > job.due_s:
            state.counters.answered_late += 1
            job.late = True
        job.started = True
        return []
    lease.tokens = max(lease.tokens, min(event.tokens, lease.lease.max_tokens))
    if isinstance(event, LeaseProgress):
        listen(state, lease, now_s)
        return []
    for key, tokens in event.gained:
        state.gain(node, key, tokens, pending=False)
    if event.failed:
        actions = lose_lease(state, lease.shard)
    else:
        state.counters.answered += 1
        state.models[node.model].replies.note(lease.tokens, lease.lease.max_tokens)
        actions = [*close(state, job), Answer(job.request.id, (), job.late)]
    return actions


def silence_s(lease: Lease) -> float:
    gap = DEFAULT_GAP_S if lease.token_s is None else lease.token_s
    return max(LEAST_SILENCE_S, SILENT_REPORTS * PROGRESS_TOKENS * gap)


def listen(state: State, lease: LeaseState, now_s: float) -> None:
    """It was heard of, or its prompt is in and it is next: one timer a stream, re-armed when it rings too soon."""
    lease.heard_s = now_s
    if not lease.timed:
        lease.timed = True
        state.at(now_s + silence_s(lease.lease), "stream", lease)


def on_silence(state: State, lease: LeaseState, now_s: float) -> list[Action]:
    """A stream's timer. The slot is let go; a node that was silent altogether attracts nothing until it speaks or is
    asked again. Where it holds passes, their own timers say when silence is suspicious."""
    node = state.nodes.get(lease.lease.node_id)
    if node is None or node.leases.get(lease.lease.request_id) is not lease:
        return []
    until = lease.heard_s + silence_s(lease.lease)
    if now_s < until - 1e-9:
        state.at(until, "stream", lease)
        return []
    if node.heard_s <= lease.heard_s and not node.held:
        node.late = True
        state.models[node.model].hungry.pop(node.id, None)
        wake(state, node, now_s + ASK_AGAIN_S)
    return [*lose_lease(state, lease.shard), *feed(state, state.models[node.model], now_s)]
