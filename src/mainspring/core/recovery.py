"""Failures: what goes back to the queue, who is suspect, and what is given up.

Retried work keeps arrival, deadline and place. After a crash the members of the running pass retry in solitary passes;
only a shard that is alone when its node dies again is condemned. A silent node is pinned late first, then its work is
given to others, what ran there in solitary passes; whichever valid result comes first wins.
"""

from msgspec.structs import astuple

from mainspring.core.actions import Action, CloseLease, DropPass, Refuse
from mainspring.core.admission import suits
from mainspring.core.dispatch import feed
from mainspring.core.events import WorkFailed
from mainspring.core.jobs import FOREVER, Held, Job, Shard
from mainspring.core.nodestate import NodeState
from mainspring.core.nouns import Part
from mainspring.core.placement import own_s
from mainspring.core.refusals import CondemnedError, ExpiredError, LeaseLostError, NoNodeError, WorkFailedError
from mainspring.core.state import State
from mainspring.errors import MainspringError

MAX_FAILURES = 3
MAX_LATES = 16
"""Times a shard may come back unstarted, or find its view gone, before each further one counts as a failure."""
ABANDON_S = 1.0
"""Least further silence before a late node's passes are given to others; at least twice the pass's own time."""
SECOND_S = 10.0
"""... and where a node fell silent under one of them before: longer than links take to end, so that a request which
kills nodes in silence is found out before it has gone through all of them."""
BEHIND_S = 1.0
"""At most so much is granted to a silent node for our own lateness."""
NO_NODE_GRACE_S = 30.0


def close(state: State, job: Job) -> list[Action]:
    """The job is settled: it leaves every queue; passes that now serve nobody are dropped where not started."""
    job.closed = True
    state.jobs.pop(job.request.id, None)
    state.forget_timers(job)
    actions: list[Action] = []
    for shard in job.shards:
        if shard.queued or shard.pin:
            state.dequeue(shard)
        for pass_id in [*shard.flight]:
            if pass_id in state.passes:
                actions += drop_if_idle(state, pass_id)
    job.shards.clear()  # each holds its job: what waited long would stay until a collection of the oldest generation
    if job.lease_node is not None:
        node = state.nodes.get(job.lease_node)
        if node is not None and node.leases.pop(job.request.id, None) is not None:
            actions.append(CloseLease(node.id, job.request.id))
            state.recap(node)
            state.touch_device(node)
    return actions


def drop_if_idle(state: State, pass_id: int) -> list[Action]:
    node, held = state.passes[pass_id]
    first = bool(node.held) and node.held[0] is held
    if held.abandoned or first or not all(shard.job.closed or pass_id not in shard.flight for shard in held.members):
        return []
    forget(state, node, held)
    return [DropPass(node.id, pass_id)]


def forget(state: State, node: NodeState, held: Held) -> None:
    state.passes.pop(held.pass_id, None)
    if held in node.held:
        node.held.remove(held)
    for part in held.parts:
        if part.view_key and part.view_key in node.pending:
            state.drop(node, part.view_key, pending=True)
    node.retime()
    if not node.held:
        state.touch_device(node)


def refuse(state: State, job: Job, error: MainspringError) -> list[Action]:
    if isinstance(error, ExpiredError):
        state.counters.expired += 1
    else:
        state.counters.failed += 1
    return [*close(state, job), Refuse(job.request.id, error)]


def requeue(state: State, shard: Shard, *, solo: bool = False) -> list[Action]:
    """Back to its place; a node that keeps a slot for it, and lives, is told to let go."""
    job = shard.job
    actions: list[Action] = []
    if job.closed or shard.done:
        return actions
    state.counters.retried += 1
    state.dequeue(shard)
    shard.restart()
    shard.solo = shard.solo or solo
    if job.lease_node is not None:
        node = state.nodes.get(job.lease_node)
        if node is not None and node.leases.pop(job.request.id, None) is not None:
            actions.append(CloseLease(node.id, job.request.id))
            state.recap(node)
            state.touch_device(node)
        job.lease_node = None
    if not job.parts and not any(other.flight or other.scanned or other.done for other in job.shards):
        job.numerics = None  # nothing of it exists yet, nor is under way
    state.enqueue(shard)
    if job.due_s < FOREVER:
        state.at(min(job.due_s, max(state.now_s, latest_start_s(state, shard))), "expiry", job)
    return actions


def on_failed(state: State, node: NodeState, held: Held, event: WorkFailed) -> list[Action]:
    """Failed parts go back, each to be tried alone; late ones and those whose view is gone go back unblamed, but not
    for ever: a node whose clock is broken could say so of everything it is sent. The other parts count as done."""
    actions: list[Action] = []
    for index in event.failed or range(len(held.members)):
        shard = held.members[index]
        late = event.late or (event.view_missing and missed(state, node, held.parts[index]))
        if held.pass_id not in shard.flight or shard.job.closed or shard.done:
            continue
        shard.lates += int(late)
        if not late or shard.lates > MAX_LATES:
            shard.failures += 1
        if shard.failures >= MAX_FAILURES:
            actions += refuse(state, shard.job, WorkFailedError("a node failed this shard too often"))
        else:
            actions += requeue(state, shard, solo=not late)
    return actions


def missed(state: State, node: NodeState, part: Part) -> bool:
    """Whether a view can be gone at all; then the node is no longer believed to hold it."""
    if not part.view_from:
        return False
    for key in (part.prefix, part.view_key):
        if key:
            state.drop(node, key, pending=False)
    return True


def on_left(state: State, node: NodeState, crashed: bool) -> list[Action]:
    """Its work goes back; what ran when it crashed is suspect."""
    actions: list[Action] = []
    model = state.models[node.model]
    model.nodes.pop(node.id, None)
    model.refresh()
    model.hungry.pop(node.id, None)
    state.nodes.pop(node.id, None)
    for key in [*node.keys, *node.pending]:
        node.keys.pop(key, None)
        state.drop(node, key, pending=True)
    for peer in node.peers:
        peer.peers.remove(node)
        peer.refresh()
    running = node.held[0] if node.held else None
    pinned, node.pinned = node.pinned, []
    left, node.held = node.held, []
    for held in left:
        state.passes.pop(held.pass_id, None)
    for held in left:
        suspect = crashed and held is running
        for shard in held.members:
            if shard.job.closed or shard.done:
                continue
            if held.pass_id not in shard.flight:
                if suspect and held.abandoned:  # given to others meanwhile, yet suspect
                    shard.solo = True
                    shard.deaths += 1
                continue
            if suspect and len(held.members) == 1 and shard.solo and shard.deaths:
                actions += refuse(state, shard.job, CondemnedError("two nodes died under it, the second while alone"))
                continue
            shard.deaths += int(suspect)
            actions += requeue(state, shard, solo=suspect)
    for shard in pinned:
        if not shard.queued:
            actions += requeue(state, shard)
    for lease in [*node.leases.values()]:
        if not lease.shard.job.closed and lease.shard.done:
            actions += lose_lease(state, lease.shard)
    node.leases = {}
    if not any(stands_in(other, node) for other in model.usable):
        model.empty_s = state.now_s
        state.at(state.now_s + NO_NODE_GRACE_S, "abandoned_model", node.model)
    return actions


def stands_in(other: NodeState, gone: NodeState) -> bool:
    """Whatever was admitted for the one can run on the other."""
    mine, its = other.spec, gone.spec
    wide = all(a >= b for a, b in zip(astuple(mine.limits), astuple(its.limits), strict=True))
    return wide and mine.numerics == its.numerics and mine.round_cost == its.round_cost


def lose_lease(state: State, shard: Shard) -> list[Action]:
    job = shard.job
    if job.started:
        return refuse(state, job, LeaseLostError("the stream broke off on its node"))
    shard.done = False
    shard.failures += 1
    if shard.failures >= MAX_FAILURES:
        return refuse(state, job, WorkFailedError("a node failed this generation too often"))
    job.open = 1
    job.parts.clear()
    return requeue(state, shard)


def waiting_pins(state: State, shard: Shard) -> list[Shard]:
    node = state.nodes.get(shard.pin) if shard.pin else None
    return node.pinned if node is not None else []


def on_abandoned_model(state: State, name: str) -> list[Action]:
    """Nobody came back in time: requests that wait for what is gone get their answer. One look at the queue, half a
    minute after a node left that no other can stand in for."""
    model = state.models.get(name)
    if model is None or state.now_s < model.empty_s + NO_NODE_GRACE_S - 1e-9:
        return []
    jobs = {shard.job.request.id: shard.job for queue in model.queues.values() for shard in queue.scan()}
    actions: list[Action] = []
    for job in jobs.values():
        if not job.closed and not any(suits(node, job, job.numerics) for node in model.usable):
            actions += refuse(state, job, NoNodeError("the last node that could run it left and none came back"))
    return actions


def on_overdue(state: State, held: Held, now_s: float) -> list[Action]:
    """Silence. First the node's clock is pinned; then its passes are given to others, once. Where we ourselves are
    behind, what we sent left later and what it said lies unread as long: it is given twice that longer."""
    entry = state.passes.get(held.pass_id)
    if entry is None or not entry[0].held or entry[0].held[0] is not held:
        return []
    node = entry[0]
    if not node.late:
        due_s = node.overdue_s() + min(2.0 * state.behind_s, BEHIND_S)
        if now_s < due_s - 1e-9:
            state.at(due_s, "overdue", held)
            return []
        node.late = True
        model = state.models[node.model]
        model.hungry.pop(node.id, None)
        if not held.abandoned:
            again = any(shard.silences for shard in held.members)
            held.abandon_s = now_s + max(SECOND_S if again else ABANDON_S, 2.0 * held.expected_s)
            state.at(held.abandon_s, "overdue", held)
        return feed(state, model, now_s)
    if held.abandoned or now_s < held.abandon_s - 1e-9:
        return []
    actions: list[Action] = []
    for member in [*node.held]:
        member.abandoned, member.abandon_s = True, now_s
        for shard in member.members:
            if member.pass_id in shard.flight and not shard.job.started:
                shard.silences += int(member is held)
                actions += requeue(state, shard, solo=member is held)
    for shard in [*node.pinned]:
        actions += requeue(state, shard)
    return actions + feed(state, state.models[node.model], now_s)


def on_expiry(state: State, job: Job, now_s: float) -> list[Action]:
    """A forecast gone bad: refused on the timer, never only when a slot frees; it counts as a miss.

    The time is up when not even an idle node could finish a waiting shard; what is in flight is left to finish late.
    """
    if job.closed or job.due_s == FOREVER:
        return []
    latest = FOREVER
    for shard in job.shards:
        if not shard.done and (shard.queued or shard in waiting_pins(state, shard)):
            latest = min(latest, latest_start_s(state, shard))
    if latest == FOREVER:
        if now_s < job.due_s:
            state.at(job.due_s, "expiry", job)
        return []
    if now_s < latest - 1e-9:
        state.at(latest, "expiry", job)
        return []
    return refuse(state, job, ExpiredError("the forecast went bad"))


def latest_start_s(state: State, shard: Shard) -> float:
    """After this no node that runs it could still finish it in time."""
    nodes = state.models[shard.job.request.model].usable
    costs = [own_s(node, shard) + 2.0 * node.net_s for node in nodes if node.runs(shard)]
    return shard.job.due_s - min(costs, default=0.0)
