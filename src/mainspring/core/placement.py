"""Should this node take that work, or does the forecast finish it sooner elsewhere? One figure: the finish.

The finish includes recomputing a view the node does not hold, and on a holder the rows already waiting for it; so
affinity ends where waiting costs more than scanning again. A slow node skips what faster ones reach in time and takes
what lies deeper in the queue, or idles.
"""

from math import ceil

from mainspring.core.duequeue import DueQueue
from mainspring.core.jobs import FOREVER, Shard
from mainspring.core.nodestate import NodeState
from mainspring.core.nouns import Work
from mainspring.core.state import ModelState

MAX_HOLDERS = 4
TIE = 0.02
"""Share of its own time by which a node may be worse and still take the head: costs are not known better than that."""


def own_s(node: NodeState, shard: Shard) -> float:
    request = shard.job.request
    scan = request.view_tokens - node.cached(shard)[0]
    c0, c1, c2, c3 = node.coef
    own = c0 + c1 * scan + c2 * shard.rows
    if c3:
        own += c3 * (shard.work[3] if scan else shard.rows * request.view_tokens)
    return own


def best_other_s(model: ModelState, node: NodeState, shard: Shard, now_s: float) -> float:
    """Earliest finish of the shard on any other node, nothing ahead of it but what higher priorities keep bringing."""
    request = shard.job.request
    view, rows, held = request.view_tokens, shard.rows, model.holders.get(request.view_key)
    best, priority = FOREVER, shard.job.slo.priority
    for other in model.usable:
        if other is node or other.late:
            continue
        c0, c1, c2, _ = other.coef
        begin = other.end_s if other.end_s > now_s else now_s + other.net_s
        own = c0 + c2 * rows if held is not None and other.id in held else c0 + c1 * view + c2 * rows
        if request.prefix_keys or other.coef[3]:  # by the same figure as its own, or each leaves the head to the other
            own = own_s(other, shard)
        finish = begin + other.pinned_s + own
        if finish < best and other.runs(shard):
            left = other.left.get(priority, 1.0)
            if left < 1.0:
                finish += own * (1.0 / left - 1.0)
            best = min(best, finish)
    return best


def skip_for(model: ModelState, node: NodeState, queue: DueQueue, priority: int, now_s: float) -> int:
    """How many shards from the head are better left to other nodes: none where this node is the best for the head."""
    head = queue.head()
    if head is None or len(model.nodes) == 1:
        return 0
    model.share_out(now_s)
    begin = max(node.end_s, now_s + node.net_s)
    own = own_s(node, head)
    if begin + own <= best_other_s(model, node, head, now_s) + TIE * own:
        return 0
    n, view, rows, pairs = model.ahead(priority, (FOREVER, 0))
    c0, c1, c2, c3 = node.coef
    here = begin + c0 + (c1 * view + c2 * rows + c3 * pairs) / n
    share = share_by(model, node, (n, view, rows, pairs), priority, here, now_s)
    higher = n - len(queue)
    return max(0, ceil(share * n - 1e-9) - higher)


def share_by(model: ModelState, node: NodeState, work: Work, priority: int, until_s: float, now_s: float) -> float:
    """The part of the work that other nodes finish before `until_s`."""
    _, view, rows, pairs = work
    done = 0.0
    for other in model.usable:
        if other is node or other.late:
            continue
        soonest = now_s + other.net_s
        free = (other.end_s if other.end_s > soonest else soonest) + other.pinned_s
        if free >= until_s:
            continue
        c0, c1, c2, c3 = other.pace
        whole = c1 * view + c2 * rows + c3 * pairs
        room = other.cap_s - c0 if other.cap_s > 2.0 * c0 else c0
        whole += c0 * (whole / room if whole > room else 1.0)
        done += (until_s - free) * other.left.get(priority, 1.0) / (whole + 1e-12)
    return min(1.0, done)


def better_elsewhere(model: ModelState, node: NodeState, shard: Shard, now_s: float) -> bool:
    """Another node holds the view and would finish the shard sooner, behind what already waits there for that view."""
    request = shard.job.request
    key = request.view_key
    if not key:
        return False
    holders = model.holders.get(key)
    if not holders or node.id in holders:
        return False
    here = max(node.end_s, now_s + node.net_s) + own_s(node, shard)
    waiting = model.waiting.get(key, {})
    queued_rows = shard.rows * len(waiting)
    for count, other in enumerate(holders.values()):
        if count >= MAX_HOLDERS:
            break
        if other.draining or other.late or not other.runs(shard):
            continue
        c0, _, c2, c3 = other.coef
        there = other.free_s(now_s) + c0 + (c2 + c3 * request.view_tokens) * queued_rows / len(holders)
        if there < here:
            return True
    return False
