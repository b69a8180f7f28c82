"""A pass came back: free its place, learn what the node holds, join shards, answer whole requests.

Results are joined in branch order; a shard that was given to someone else meanwhile takes the first valid result. A
chunk was followed by the rest of its shard when it was sent; only its results are noted here.
"""

from mainspring.core.actions import Action, Answer
from mainspring.core.dispatch import watch
from mainspring.core.events import WorkDone, WorkFailed
from mainspring.core.jobs import Held, Job, Shard
from mainspring.core.nodestate import NodeState
from mainspring.core.nouns import Part
from mainspring.core.recovery import close, forget
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
    if isinstance(event, WorkDone):
        learn_keys(state, node, event)
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
            actions += advance(state, held, shard, part, index, now_s)
    if not served and isinstance(event, WorkDone):
        state.counters.wasted_passes += 1
        state.counters.wasted_s += max(0.0, event.measured_s)
    return actions


def learn_keys(state: State, node: NodeState, event: WorkDone) -> None:
    for key, tokens in event.gained:
        state.gain(node, key, tokens, pending=False)
    for key in event.dropped:
        state.drop(node, key, pending=False)


def advance(state: State, held: Held, shard: Shard, part: Part, index: int, now_s: float) -> list[Action]:
    job = shard.job
    complete = shard.ends_with(part)
    stale = held.pass_id not in shard.flight
    if stale and (job.request.is_lease or not (complete and part.branch_from == shard.lo)):
        return []
    if stale:
        state.dequeue(shard)
    else:
        shard.flight.remove(held.pass_id)
    shard.acked = part.branch_to
    if part.rows or complete:
        job.parts.setdefault(shard.index, []).append((held.pass_id, index))
    return finish(state, job, shard, now_s) if complete else []


def finish(state: State, job: Job, shard: Shard, now_s: float) -> list[Action]:
    """A scored request is answered with its last shard; a generation goes on as a lease."""
    shard.done = True
    shard.pin = None
    job.open -= 1
    if job.open or job.request.is_lease:
        return []
    late = now_s > job.due_s
    state.counters.answered += 1
    state.counters.answered_late += int(late)
    return [*close(state, job), Answer(job.request.id, job.join(), late)]
