"""Admission at arrival: the predicted finish decides, and a refusal says when to come back.

Why the retry time is honest: in an otherwise unchanged world the forecast finish of a like request stands still while
the queue drains, so it is admitted from `finish - target` on and refused before. Promised work is put ahead in that
figure (and only there), so simultaneous refusals get successive times.
"""

from math import sqrt

from mainspring.core.forecast import Supply, cap_s, drained_s, lot_s, supply
from mainspring.core.jobs import FOREVER, Job
from mainspring.core.nodestate import NodeState
from mainspring.core.nouns import NO_WORK, Work, pairs
from mainspring.core.promises import MAX_RETRY_S
from mainspring.core.refusals import ContentionError, DeadlineError, NoNodeError, RefusedError, UnknownModelError
from mainspring.core.sharding import cut
from mainspring.core.slots import paced, slot_s
from mainspring.core.state import ModelState, State, follow
from mainspring.errors import TooLargeError

TAIL = 2.0
"""Economic lots a line must leave its last member. At 1.3 times capacity with exact costs 0.7 missed up to 0.6 %,
1.5 none of 50,000; the rest is for noise."""
SHARE = 0.15
"""... but at most this share of the time the line takes: a short line has no time to degrade."""
DEAREST = 0.5
"""Share of its target that a request which costs more a token than its class leaves free, at most."""
RETRY_MARGIN = 1.005
"""Promise a little later than the forecast: a client that comes a hair early is refused again. Beside this share, a
half of a fixed cost (the forecast counts passes in fractions) and a thirtieth of the request's own work."""


def assess(state: State, job: Job, now_s: float) -> float:
    """Predicted finish of a sound, feasible job, which is cut into shards and given its place. Raises the refusal."""
    request = job.request
    model = state.models.get(request.model)
    if model is None or not model.nodes:
        if model is None:
            raise UnknownModelError("no node ever offered it", param="model")
        raise NoNodeError("no node serves this model now")
    check_size(model, job)
    if job.hard_s <= now_s:
        raise DeadlineError("the deadline has passed", param="deadline_s")
    nodes = suitable(model, job)
    if not nodes and request.is_lease and any(fits(node, job) for node in model.usable):
        raise ContentionError("no node keeps this class's time per token, even when idle", param="slo")
    if not nodes:
        raise NoNodeError("no usable node takes this request: numerics, draining or no free kind of slot")
    cut(job, nodes, state.next_seq())
    model.note_shape(job.slo.name, request.view_tokens, job.rows, now_s)
    return place_in_line(state, model, supply(nodes, now_s), job, now_s)


def suitable(model: ModelState, job: Job) -> list[NodeState]:
    """All usable nodes where the tightest limits already allow it, else whoever does."""
    request, tightest = job.request, model.tightest
    plain = not request.numerics and not request.is_lease
    if plain and request.view_tokens <= tightest.view_tokens and job.longest <= tightest.pass_tokens:
        return model.usable
    return [node for node in model.usable if suits(node, job)]


def check_size(model: ModelState, job: Job) -> None:
    request, widest = job.request, model.widest
    if not request.is_lease and request.view_tokens > widest.view_tokens:
        raise _too_large("view", widest.view_tokens, request.view_tokens, "view_tokens")
    if job.longest > widest.pass_tokens:
        raise _too_large("branch", widest.pass_tokens, job.longest, "branches")
    context, most = request.view_tokens + request.max_tokens, min(widest.stream_tokens, widest.context_tokens)
    if request.is_lease and context > most:
        raise _too_large("prompt and reply", most, context, "max_tokens")


def _too_large(what: str, limit: int, actual: int, param: str) -> TooLargeError:
    return TooLargeError(
        f"{what}: {actual:,} tokens, and no node takes more than {limit:,}", limit=limit, actual=actual, param=param
    )


def suits(node: NodeState, job: Job, numerics: str | None = None) -> bool:
    """`numerics`: the class that a job under way is bound to."""
    return fits(node, job, numerics) and (not job.request.is_lease or paced(node, job))


def fits(node: NodeState, job: Job, numerics: str | None = None) -> bool:
    """By size and numerics, whatever its speed."""
    request, limits = job.request, node.spec.limits
    if numerics is not None and node.spec.numerics != numerics:
        return False
    if request.numerics and node.spec.numerics not in request.numerics:
        return False
    if not request.is_lease:
        return request.view_tokens <= limits.view_tokens and job.longest <= limits.pass_tokens
    context = request.view_tokens + request.max_tokens
    return limits.slots > 0 and context <= min(limits.stream_tokens, limits.context_tokens)


def place_in_line(state: State, model: ModelState, have: Supply, job: Job, now_s: float) -> float:
    """Forecast at its due place; where jumping ahead there would break somebody's slack, at the end of the line."""
    queue = model.queues[job.slo.priority]
    shard = job.shards[0]
    last = queue.last()
    jumps = last is not None and shard.key < last
    ahead = model.ahead(job.slo.priority, shard.key if jumps else None)
    finish = finish_s(model, have, job, ahead, now_s)
    latest = job.due_s - dear_s(model, have, job, ahead)
    if jumps:
        delay = drained_s(have, job.work, now_s) - drained_s(have, NO_WORK, now_s)
        if delay == FOREVER or delay > queue.slack_after(shard.key):
            ahead = model.ahead(job.slo.priority, None)
            finish = finish_s(model, have, job, ahead, now_s)
            to_end(job, last or shard.key)
        elif finish <= latest:
            queue.delay_after(shard.key, delay)
    if finish > latest:
        raise refusal(state, model, have, job, ahead, finish, now_s)
    slack = job.due_s - finish if job.due_s < FOREVER else FOREVER
    for piece in job.shards:
        piece.slack_s = slack
    model.promises[job.slo.priority].redeem(now_s)
    model.note_load(job.slo.priority, job.work, now_s)
    if not job.request.is_lease:
        follow(model.taken, job.slo.name, job.request.view_tokens, job.rows)
    return finish


def to_end(job: Job, last: tuple[float, int]) -> None:
    for shard in job.shards:
        shard.key = (last[0], shard.key[1])


def finish_s(model: ModelState, have: Supply, job: Job, ahead: Work, now_s: float, at_s: float | None = None) -> float:
    """The best node's finish behind `ahead`, in a pass of an economic lot where others wait too; a job of many shards
    also needs its work drained by all. `at_s`: of a like request that comes then, while the line drains undisturbed."""
    then_s = now_s if at_s is None else at_s
    target = FOREVER if job.slo.target_s is None else job.slo.target_s
    start = drained_s(have, ahead, now_s, target)
    depth = max(0.0, start - then_s) / len(have) if ahead[0] and have and target < FOREVER else 0.0
    best = FOREVER
    for (node, free), own in zip(have, own_costs(model, have, job), strict=True):
        begin = free if free > start else start
        if ahead[0] and target < FOREVER:
            lot = lot_s(node, target)
            own += min(TAIL * lot, SHARE * max(0.0, start - then_s)) + (node.fit.late_ratio - 1.0) * sqrt(
                depth * cap_s(node, target)
            )
        if job.request.is_lease:
            begin = max(begin, slot_s(node, job, now_s, model.prompts / len(have), model.replies.share))
        if begin + own + node.net_s < best:
            best = begin + own + node.net_s
    if len(job.shards) > 1:
        own_work = job.work
        total = (ahead[0] + own_work[0], ahead[1] + own_work[1], ahead[2] + own_work[2], ahead[3] + own_work[3])
        best = max(best, drained_s(have, total, now_s, target))
    return best


def dear_s(model: ModelState, have: Supply, job: Job, ahead: Work) -> float:
    """How much sooner than its target it must finish, for what it costs a token above those admitted of its class: a
    refusal changes nothing for the next.

    Where a line has to turn somebody away, tokens answered in time are most if those are turned away that cost most a
    token: x % dearer needs x % of the target to spare. Nothing where nobody waits, so no capacity is kept idle for it,
    and nothing in the top class, which is refused for its own target alone.
    """
    target, typical = job.slo.target_s, model.taken.get(job.slo.name)
    if not ahead[0] or target is None or typical is None or job.request.is_lease or not have:
        return 0.0
    if job.hard_s < job.arrival_s + target:  # its own deadline binds, which no retry moves
        return 0.0
    if job.slo.priority == model.priorities[0]:
        return 0.0
    _, c1, c2, c3 = min((node for node, _ in have), key=lambda node: node.coef[1]).coef
    view, rows = job.request.view_tokens, job.rows
    scan = 0 if model.holders.get(job.request.view_key) else view
    own = c1 * scan + c2 * rows + c3 * pairs(view - scan, view, rows)
    mine = own / (view + rows)
    usual = (c1 * typical[0] + c2 * typical[1] + c3 * typical[0] * (typical[0] / 2.0 + typical[1])) / sum(typical)
    if mine <= usual or usual <= 0.0:
        return 0.0
    return max(0.0, target - own) * min(DEAREST, mine / usual - 1.0)


def ahead_s(node: NodeState, ahead: Work) -> float:
    _, c1, c2, c3 = node.coef
    return c1 * ahead[1] + c2 * ahead[2] + c3 * ahead[3]


def own_costs(model: ModelState, have: Supply, job: Job) -> list[float]:
    """Of the job's first shard on each node: p99 of it where a target binds, the mean elsewhere."""
    request, shard = job.request, job.shards[0]
    view, rows, attention = request.view_tokens, shard.rows, shard.work[3]
    held = model.holders.get(request.view_key, ()) if request.view_key else ()
    binding = job.due_s < FOREVER
    costs = []
    for node, _ in have:
        c0, c1, c2, c3 = node.coef
        if held and node.id in held:
            own = c0 + c2 * rows + c3 * rows * view
        elif request.prefix_keys:
            own = c0 + c1 * (view - node.cached(shard)[0]) + c2 * rows + c3 * attention
        else:
            own = c0 + c1 * view + c2 * rows + c3 * attention
        if own > node.above[job.slo.priority]:
            own = stretched(node, job, own)
        if binding:
            own *= node.fit.sure_ratio
        costs.append(own + node.round_after(1, view) if request.is_lease else own)
    return costs


def stretched(node: NodeState, job: Job, own: float) -> float:
    """Longer than the cap: several passes, each with its fixed cost and the rounds between."""
    count = own / max(node.caps[job.slo.priority] - node.coef[0], node.coef[0], 1e-4)
    return own + count * (node.coef[0] + node.round_s)


def refusal(
    state: State, model: ModelState, have: Supply, job: Job, ahead: Work, finish: float, now_s: float
) -> RefusedError:
    """With the earliest honest retry: `finish - target` behind all promised work, or none."""
    message = "would finish too late"
    target = job.slo.target_s
    if target is None or finish == FOREVER:
        return ContentionError(message)
    if alone_s(model, have, job) > min(target, job.hard_s - now_s):
        return ContentionError("no node is fast enough even when idle")
    promised = model.promised(job.slo.priority, now_s)
    if promised[0]:
        both = (ahead[0] + promised[0], ahead[1] + promised[1], ahead[2] + promised[2], ahead[3] + promised[3])
        finish += drained_s(have, both, now_s, target, steady=True) - drained_s(have, ahead, now_s, target, steady=True)
    wait = ripe_s(model, have, job, ahead, finish, now_s) - now_s
    retry = wait * RETRY_MARGIN + 0.08 * min(wait, 0.03) + slop_s(have, job)  # mixed fleets are off by 2 ms at first
    if retry > MAX_RETRY_S or finish > job.hard_s:
        return ContentionError(message)
    model.promises[job.slo.priority].add(now_s + retry, state.next_seq(), job.work)
    return ContentionError(message, retry_after_s=retry)


def ripe_s(model: ModelState, have: Supply, job: Job, ahead: Work, finish: float, now_s: float) -> float:
    """When a like request's forecast meets its target. The margins for a long line shrink with it, so the forecast
    falls by more than a second a second; three steps of a contraction by `SHARE` find where it crosses."""
    target = job.slo.target_s or 0.0
    promised = finish - finish_s(model, have, job, ahead, now_s)
    spare = dear_s(model, have, job, ahead)
    ripe = finish - target + spare
    for _ in range(3):
        then = max(now_s, ripe - promised)
        ripe = finish_s(model, have, job, ahead, now_s, then) + promised - target + spare
    return max(now_s, settled_s(have, ahead, job, ripe - promised)) + promised


def settled_s(have: Supply, ahead: Work, job: Job, ripe: float) -> float:
    """Sooner by what the forecast will have shrunk: it counts lots, but nodes that come free take whole capped passes.
    It shrinks when they do, so not before the last of them."""
    credit, target = 0.0, job.slo.target_s or 0.0
    last = -FOREVER
    for node, _ in have:
        cap = min(cap_s(node, target), node.caps[job.slo.priority])
        if node.held and node.end_s <= ripe and ahead_s(node, ahead) > cap * len(have):
            count = 1.0 + (ripe - node.end_s) / cap
            credit += count * node.coef[0] * max(0.0, cap / lot_s(node, target) - 1.0)
            last = max(last, node.end_s)
    return min(ripe, max(ripe - credit / len(have), last))


def slop_s(have: Supply, job: Job) -> float:
    """What the forecast may be off by from one pass to the next."""
    node = min((node for node, _ in have), key=lambda node: node.coef[1])
    c0, c1, c2, _ = node.coef
    return c0 / 2.0 + 0.035 * (c1 * job.request.view_tokens + c2 * job.rows) / len(have)


def alone_s(model: ModelState, have: Supply, job: Job) -> float:
    """Least time of the job's first shard on an idle fleet."""
    costs = own_costs(model, have, job)
    return min((own + 2.0 * node.net_s for (node, _), own in zip(have, costs, strict=True)), default=FOREVER)
