"""When a node gets its next pass, and sending it.

A node holds at most two passes: one running, one under way. The second is composed as late as possible, the network
time and the early side of the cost error before the first is predicted to end, so that urgent work that arrives
meanwhile still gets in, and the node never runs dry. An idle node is offered work at once. A node that found nothing is
`hungry` and hears of the next arrival.
"""

from mainspring.core.actions import Action, OpenLease, SendPass
from mainspring.core.batching import Draft, compose
from mainspring.core.jobs import Held
from mainspring.core.nodestate import LeaseState, NodeState
from mainspring.core.nouns import Lease, Pass
from mainspring.core.state import ModelState, State

WINDOW = 2
LEAD_S = 0.0005
OFFERS = 4
"""Hungry nodes fed per event, best first."""
LONGEST_WAIT_S = 600.0


def offer(state: State, node: NodeState, now_s: float) -> list[Action]:
    """Send the node its next pass if it is time, else set the moment to ask again."""
    model = state.models[node.model]
    model.hungry.pop(node.id, None)
    if node.draining and not node.pinned:
        return []
    if node.late or len(node.held) >= WINDOW:
        return []
    if node.held:
        ask = node.end_s - lead_s(node)
        if now_s < ask - 1e-9:
            wake(state, node, ask)
            return []
    state.recap(node)
    draft = compose(model, node, now_s)
    if draft is None:
        if not node.draining:
            model.hungry[node.id] = node
        return []
    actions = send(state, node, draft, now_s)
    return actions + offer(state, node, now_s)


def insist(state: State, model: ModelState, now_s: float) -> list[Action]:
    """When everybody is idle and somebody waits: each node leaves the head to another one, by figures that do not
    quite agree, and nothing would ever happen. The first that can takes it, whoever would be better."""
    if not model.hungry or not model.queued():
        return []
    if any(node.held or not (node.late or node.id in model.hungry) for node in model.usable):
        return []
    for node in [*model.hungry.values()]:
        draft = compose(model, node, now_s, insist=True)
        if draft is not None:
            model.hungry.pop(node.id, None)
            return [*send(state, node, draft, now_s), *offer(state, node, now_s)]
    return []


def lead_s(node: NodeState) -> float:
    early = (1.0 - node.fit.early_ratio) * node.held[-1].expected_s
    return node.net_s + LEAD_S + early


def wake(state: State, node: NodeState, when_s: float) -> None:
    if node.wake_s != when_s:
        node.wake_s = when_s
        state.at(when_s, "wake", node)


def feed(state: State, model: ModelState, now_s: float) -> list[Action]:
    """Offer the queue to hungry nodes: whoever would finish its head first, as long as they take something; after the
    first that does not, only the one not asked for longest, so that each is heard and an event stays cheap."""
    actions: list[Action] = []
    for _ in range(OFFERS):
        if not model.hungry or not model.queued():
            return actions
        sent = offer(state, likeliest(model, now_s), now_s)
        if not sent and model.hungry:
            return actions + offer(state, next(iter(model.hungry.values())), now_s)
        actions += sent
    return actions


def likeliest(model: ModelState, now_s: float) -> NodeState:
    if len(model.hungry) == 1:
        return next(iter(model.hungry.values()))
    head = next(head for queue in model.queues.values() if (head := queue.head()))
    view, rows = head.job.request.view_tokens, head.rows
    held = model.holders.get(head.job.request.view_key, ())

    def finish(node: NodeState) -> tuple[float, str]:
        c0, c1, c2, _ = node.coef
        scan = 0 if node.id in held else view
        if head.job.request.prefix_keys:
            scan = view - node.cached(head)[0]
        return max(node.end_s, now_s + node.net_s) + node.pinned_s + c0 + c1 * scan + c2 * rows, node.id

    return min(model.hungry.values(), key=finish)


def send(state: State, node: NodeState, draft: Draft, now_s: float) -> list[Action]:
    """Commit a draft: its shards leave the queue, the node's timeline grows, leases reserve their slot."""
    pass_id = state.next_seq()
    for shard in draft.members:
        state.dequeue(shard)
        shard.flight.append(pass_id)
        shard.job.numerics = shard.job.numerics or node.spec.numerics
    held = Held(pass_id, draft.members, draft.parts, (draft.view, draft.rows, draft.pairs), draft.seconds, node.factor,
                now_s)  # fmt: skip
    was_idle = not node.held
    node.held.append(held)
    state.passes[pass_id] = (node, held)
    state.counters.passes += 1
    for shard, part in zip(draft.members, draft.parts, strict=True):
        if not shard.ends_with(part):
            shard.extend(part, node.id)
            state.enqueue(shard)
        expect_keys(state, node, shard.job.request.view_tokens, part.view_key, part.view_to)
    node.retime()
    if was_idle:
        state.touch_device(node)
        watch(state, node)
    wait = max(0.0, draft.start_s - now_s - node.net_s)
    latest = min(LONGEST_WAIT_S, held.due_s - now_s - 2.0 * node.net_s - draft.seconds)
    start_within = max(latest, wait + 0.02 + (node.fit.late_ratio - 1.0) * 3.0 * (wait + draft.seconds))
    work = Pass(pass_id, node.id, node.epoch, tuple(draft.parts), draft.seconds, start_within, held.priority,
                tuple(draft.shares))  # fmt: skip
    return [*open_leases(node, draft), SendPass(work)]


def expect_keys(state: State, node: NodeState, view_tokens: int, key: str, view_to: int) -> None:
    """A finished scan will be held there: later shards of the view can count on it before the node says so."""
    if key and view_to == view_tokens and key not in node.keys:
        state.gain(node, key, view_tokens, pending=True)


def open_leases(node: NodeState, draft: Draft) -> list[Action]:
    """A lease's slot is reserved, and the node told, with its first chunk."""
    actions: list[Action] = []
    for shard in draft.members:
        job = shard.job
        if not job.request.is_lease:
            continue
        if job.lease_node is None:
            job.lease_node = node.id
            lease = Lease(job.request.id, node.id, job.request.view_tokens, job.request.max_tokens, job.slo.token_s,
                          job.attempts)  # fmt: skip
            job.attempts += 1
            node.leases[job.request.id] = LeaseState(lease, shard)
            actions.append(OpenLease(lease))
    return actions


def watch(state: State, node: NodeState) -> None:
    """A timer for the moment silence about the first held pass becomes suspicious."""
    if node.held:
        state.at(node.overdue_s(), "overdue", node.held[0])
