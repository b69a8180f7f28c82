"""When would work finish? Water-filling over the nodes' timelines, in the order the queue will be served.

Work ahead drains into all nodes at their own pace, a node joining the moment one mean item of that work would finish
there as early as on the best node: a slow idle node counts only once the queue is deep enough for it. List scheduling
starts an item no later than this level, since until then no node that counts was idle (Graham 1966). One evaluation is
O(nodes log nodes), whatever the queue.
"""

from collections.abc import Iterable
from math import sqrt

from mainspring.core.jobs import FOREVER
from mainspring.core.nodestate import NodeState
from mainspring.core.nouns import Work

Supply = list[tuple[NodeState, float]]
"""Nodes that answer, each with the moment it could start new work."""


SPEAKS_S = 1.0
"""How long at least a node that is late is taken to stay silent yet, where there is no other."""


def supply(nodes: Iterable[NodeState], now_s: float) -> Supply:
    """A late node's clock is pinned: it has none to give. Where all are late, each is taken to speak when its work
    would be given up: who can wait for that is not turned away, and the others are told when to ask again. The longer
    the silence after that, the fewer can wait: nobody is admitted for ever to what never answers."""
    have: Supply = []
    late: Supply = []
    for node in nodes:
        if not node.late:
            begin, soonest = node.end_s, now_s + node.net_s
            have.append((node, (begin if begin > soonest else soonest) + node.pinned_s))
        else:
            late.append((node, max(heard_again_s(node, now_s), node.end_s, now_s + SPEAKS_S) + node.pinned_s))
    return have or late


def heard_again_s(node: NodeState, now_s: float) -> float:
    """When its work is given up; since then silent, it is taken to stay so as long again. Without work, when it is
    asked again."""
    if node.held:
        first = node.held[0]
        return 2.0 * now_s - first.abandon_s if first.abandoned else first.abandon_s
    return node.wake_s if node.wake_s < FOREVER else now_s


def cap_s(node: NodeState, target_s: float) -> float:
    """The node's cap, or half the target where no class has set one yet."""
    return node.cap_s if node.cap_s < target_s / 2.0 else target_s / 2.0


def lot_s(node: NodeState, target_s: float) -> float:
    """How long a pass should be where a target binds: `sqrt(c0 * target)`, at most the cap.

    The economic lot: a line so long that its head can only just run alone pays c0 for every request and never
    recovers; one that leaves the head room for a pass of k fixed costs loses k*c0 of the target and 1/k of the speed.
    """
    c0, cap = node.coef[0], cap_s(node, target_s)
    lot = sqrt(c0 * target_s) if target_s < FOREVER else cap
    lot = lot if lot > 2.0 * c0 else 2.0 * c0
    return lot if lot < cap else cap


def drained_s(have: Supply, ahead: Work, now_s: float, target_s: float = FOREVER, *, steady: bool = False) -> float:
    """When the last of `ahead` has started everywhere it pays; `now_s` where nothing is ahead.

    Passes are taken to be economic lots, which is cautious; `steady` takes what a standing line settles at.
    """
    n, view, rows, pairs = ahead
    if n <= 0:
        return now_s
    levels: list[tuple[float, float]] = []
    best = FOREVER
    for node, free in have:
        c0, c1, c2, c3 = node.pace
        work = c1 * view + c2 * rows + c3 * pairs
        one = c0 + work / n
        if one < best:
            best = one
        length = lot_s(node, target_s)
        if steady:
            length = sqrt(length * cap_s(node, target_s))
        count = passes(node, work, n, view + rows, length)
        levels.append((free + one, 1.0 / (work + c0 * count + 1e-12)))
    levels.sort()
    return fill(levels, best)


def passes(node: NodeState, work_s: float, n: int, tokens: int, lot: float) -> float:
    """How many a node would need for all of it: by its lot, its tokens, its parts; at least one."""
    c0 = node.coef[0]
    count = work_s / (lot - c0 if lot > 2.0 * c0 else c0 + 1e-9)
    limits = node.spec.limits
    if count * limits.pass_tokens < tokens:
        count = tokens / limits.pass_tokens
    if count * limits.pass_parts < n:
        count = n / limits.pass_parts
    return count if count > 1.0 else 1.0


def fill(levels: list[tuple[float, float]], offset_s: float) -> float:
    """T with `sum rate * (T - level + offset) = 1` over the levels below T."""
    rate = filled = 0.0
    level = FOREVER
    for start, speed in levels:
        if start - offset_s >= level:
            break
        rate += speed
        filled += speed * (start - offset_s)
        level = (1.0 + filled) / rate
    return level
