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


def drained_s(nodes: Iterable[NodeState], ahead: Work, now_s: float) -> float:
    """When the last of `ahead` has started everywhere it pays; `now_s` where nothing is ahead."""
    n, view, rows, pairs = ahead
    if n <= 0:
        return now_s
    levels: list[tuple[float, float]] = []
    best = FOREVER
    for node in nodes:
        free = node.free_s(now_s)
        if free == FOREVER:
            continue
        c0, c1, c2, c3 = node.pace
        work = c1 * view + c2 * rows + c3 * pairs
        one = c0 + work / n
        if one < best:
            best = one
        cap = node.cap_s
        limits = node.spec.limits
        room = cap - c0 if cap > 2.0 * c0 else c0
        passes = max(1.0, work / room, (view + rows) / limits.pass_tokens, n / limits.pass_parts)
        levels.append((free + one, 1.0 / max(1e-12, work + c0 * min(passes, n + work / room))))
    levels.sort()
    return fill(levels, best)


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
