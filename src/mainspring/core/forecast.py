"""When would work finish? Water-filling over the nodes' timelines, in the order the queue will be served.

Work ahead drains into all nodes at their own pace, a node joining the moment one mean item of that work would finish
there as early as on the best node: a slow idle node counts only once the queue is deep enough for it. List scheduling
starts an item no later than this level, since until then no node that counts was idle (Graham 1966). One evaluation is
O(nodes log nodes), whatever the queue.
"""

from collections.abc import Iterable

from mainspring.core.jobs import FOREVER
from mainspring.core.nodestate import NodeState
from mainspring.core.nouns import Work

Supply = list[tuple[NodeState, float]]
"""Nodes that answer, each with the moment it could start new work."""


def supply(nodes: Iterable[NodeState], now_s: float) -> Supply:
    """A late node's clock is pinned: it has none to give."""
    have: Supply = []
    for node in nodes:
        if not node.late:
            begin, soonest = node.end_s, now_s + node.net_s
            have.append((node, (begin if begin > soonest else soonest) + node.pinned_s))
    return have


def drained_s(have: Supply, ahead: Work, now_s: float) -> float:
    """When the last of `ahead` has started everywhere it pays; `now_s` where nothing is ahead."""
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
        levels.append((free + one, 1.0 / (work + c0 * passes(node, c0, work, n, view + rows) + 1e-12)))
    levels.sort()
    return fill(levels, best)


def passes(node: NodeState, c0: float, work_s: float, n: int, tokens: int) -> float:
    """How many a node would need for all of it: by its cap, its tokens, its parts; at least one."""
    cap = node.cap_s
    count = work_s / (cap - c0 if cap > 2.0 * c0 else c0)
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
