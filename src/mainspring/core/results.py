"""A pass came back: free its place, learn what the node holds, join shards, answer whole requests.

Results are joined in branch order; a shard that was given to someone else meanwhile takes the first valid result. A
chunk was followed by the rest of its shard when it was sent; only its results are noted here.
"""

from mainspring.core.actions import Action, Answer
from mainspring.core.cost import usable
from mainspring.core.dispatch import watch
from mainspring.core.events import WorkDone, WorkFailed
from mainspring.core.jobs import Held, Job, Shard
from mainspring.core.leases import listen
from mainspring.core.nodestate import NodeState
from mainspring.core.nouns import Part
from mainspring.core.recovery import close, drop_if_idle, forget, requeue
from mainspring.core.state import State


def settle(state: State, node: NodeState, held: Held, event: WorkDone | WorkFailed, now_s: float) -> list[Action]:
    """`WorkFailed` with named parts settles the others; without, none."""
    forget(state, node, held)
    node.late = False
    if node.held:
        node.held[0].started_s = now_s - node.net_s
        node.retime()
        watch(state, node)
    bad: set[int] | range = set()
    learn_keys(state, node, held, event)
    if isinstance(event, WorkDone):
        node.refresh()
    else:
        bad = set(event.failed) or range(len(held.members))
    actions: list[Action] = []
    served = False
    for index, (shard, part) in enumerate(zip(held.members, held.parts, strict=True)):
        if index in bad:
            continue
        if not shard.job.closed and not shard.done:
            served = True
            actions += advance(state, node, held, shard, part, index, now_s)
    if not served and isinstance(event, WorkDone):
        state.counters.wasted_passes += 1
        state.counters.wasted_s += event.measured_s if usable(event.measured_s) else 0.0
    return actions


def learn_keys(state: State, node: NodeState, held: Held, event: WorkDone | WorkFailed) -> None:
    """The checkpoint of a view half scanned goes by the view's key already; nobody else can build on it."""
    whole = {part.view_key: shard.job.request.view_tokens for shard, part in zip(held.members, held.parts, strict=True)}
    for key, tokens in event.gained:
        if tokens >= whole.get(key, 0):
            state.gain(node, key, tokens, pending=False)
    for key in event.dropped:
        state.drop(node, key, pending=False)


def advance(
    state: State, node: NodeState, held: Held, shard: Shard, part: Part, index: int, now_s: float
) -> list[Action]:
    job = shard.job
    complete = shard.ends_with(part)
    stale = held.pass_id not in shard.flight
    follows = part.branch_from == shard.acked
    if stale and (job.request.is_lease or not (complete and follows and job.numerics in (None, node.spec.numerics))):
        return []
    if not stale:
        shard.flight.remove(held.pass_id)
        if not follows:  # an earlier chunk's results are missing: nodes work in order, so they are lost
            return requeue(state, shard)
    if stale:
        state.dequeue(shard)
    job.numerics = job.numerics or node.spec.numerics
    shard.acked = part.branch_to
    if part.rows or complete:
        job.parts.setdefault(shard.index, []).append((held.pass_id, index))
    return finish(state, job, shard, now_s) if complete else []


def finish(state: State, job: Job, shard: Shard, now_s: float) -> list[Action]:
    """A scored request is answered with its last shard; a generation goes on as a lease. Whoever was given the shard
    meanwhile works for nothing: passes of it that wait are taken back."""
    shard.done = True
    shard.pin = None
    job.open -= 1
    given = [*shard.flight]
    actions: list[Action] = []
    shard.flight.clear()
    for pass_id in given:
        if pass_id in state.passes:
            actions += drop_if_idle(state, pass_id)
    if job.request.is_lease:
        node = state.nodes.get(job.lease_node or "")
        if node is not None and job.request.id in node.leases:
            listen(state, node.leases[job.request.id], now_s)
        return actions
    if job.open:
        return actions
    late = now_s > job.due_s
    state.counters.answered += 1
    state.counters.answered_late += int(late)
    return [*actions, *close(state, job), Answer(job.request.id, job.join(), late)]
