"""Filling one pass: the longest draft that keeps every member's due time, the node's limits and the cap.

The head of the line goes first, so large work is never passed over for small. A shard too long for the cap runs in
chunks that extend its checkpoint. Lower priority joins a draft with higher members only while it lengthens their pass
by a few fixed costs and all keep their due times. Waiting shards of a view already in the draft join for the price of
their rows.
"""

from itertools import islice
from math import hypot

from mainspring.core.admission import stretched
from mainspring.core.jobs import FOREVER, Shard
from mainspring.core.nodestate import NodeState
from mainspring.core.nouns import GRID, Part, pairs
from mainspring.core.placement import better_elsewhere, skip_for
from mainspring.core.slots import has_slot
from mainspring.core.state import ModelState

SCAN = 48
"""Shards looked at per priority; those passed over are pinned, exclusive, or better off elsewhere."""
PASSED_BY = 16 * SCAN
"""... and how deep, stepping over prompts that wait for a slot, so that they don't hold up scores behind them."""
JOIN = 4.0
"""Fixed costs by which lower priority may lengthen a pass with higher members; it saves them all one of its own."""
MISFITS = 8
"""Shards in a row that don't fit before a draft counts as full."""


class Draft:
    """A pass being filled. `due_s` is the tightest due time of its members that it can keep."""

    __slots__ = (
        "busy_s",
        "cap_s",
        "due_s",
        "lease",
        "members",
        "node",
        "pairs",
        "parts",
        "priority",
        "rows",
        "seconds",
        "shares",
        "solo",
        "start_s",
        "top_limit_s",
        "view",
        "views",
    )  # fmt: skip

    def __init__(self, node: NodeState, now_s: float) -> None:
        self.node = node
        self.start_s = max(node.end_s, now_s + node.net_s)
        self.busy_s = node.held[-1].expected_s if node.held else 0.0
        self.members: list[Shard] = []
        self.parts: list[Part] = []
        self.shares: list[int] = []
        self.views: set[str] = set()
        self.view = self.rows = self.pairs = 0
        self.seconds = node.coef[0]
        self.cap_s = node.cap_s
        self.due_s = FOREVER
        self.top_limit_s = (1.0 + JOIN) * node.coef[0]
        self.priority = -1
        self.solo = False
        self.lease = False

    def add(self, shard: Shard) -> bool:
        """Take the shard, or its first chunk, if that breaks nothing."""
        node, request, limits = self.node, shard.job.request, self.node.spec.limits
        if (
            len(self.members) >= limits.pass_parts
            or not node.runs(shard)
            or (self.members and (shard.solo or self.solo))
        ):
            return False
        if request.is_lease and not self._slot(shard):
            return False
        cached, prefix = node.cached(shard)
        share = bool(request.view_key) and request.view_key in self.views
        scan = 0 if share else request.view_tokens - cached
        _, c1, c2, c3 = node.coef
        more_pairs = shard.rows * request.view_tokens if share else pairs(cached, request.view_tokens, shard.rows)
        seconds = self.seconds + c1 * scan + c2 * shard.rows + c3 * more_pairs
        fits = self.view + self.rows + scan + shard.rows <= limits.pass_tokens
        if not self.members:
            long = not fits or seconds > node.above[shard.job.slo.priority] * 1.0001
            takes = seconds
            if long and not shard.pin:  # once begun it goes on while it can; begun too late it is work for nothing
                takes = stretched(node, shard.job, seconds) * node.fit.sure_ratio
            if self.start_s + takes + node.net_s > shard.job.due_s:
                return False
            self.cap_s = node.caps[shard.job.slo.priority]
            if long:
                return self._chunk(shard, cached, prefix)
        elif not (fits and seconds <= self.cap_s and self._keeps(shard, seconds)):
            return False
        part = Part(request.id, shard.index, request.view_tokens - scan, request.view_tokens, shard.lo, shard.hi,
                    shard.rows, request.view_key, "" if share else prefix, request.is_lease)  # fmt: skip
        self._take(shard, part, seconds, scan, shard.rows, more_pairs, share)
        return True

    def _slot(self, shard: Shard) -> bool:
        """One new lease a pass: the slot count moves only when it is sent."""
        return shard.job.lease_node == self.node.id or (not self.lease and has_slot(self.node, shard.job))

    def _keeps(self, shard: Shard, seconds: float) -> bool:
        if shard.job.slo.priority < self.priority and seconds > self.top_limit_s:
            return False
        due = min(self.due_s, shard.job.due_s)
        if due == FOREVER:
            return True
        spread = (self.node.fit.sure_ratio - 1.0) * hypot(seconds, self.busy_s)
        return self.start_s + seconds + spread + self.node.net_s <= due

    def _take(
        self, shard: Shard, part: Part, seconds: float, scan: int, rows: int, more_pairs: int, share: bool
    ) -> None:
        if share:
            self.shares.append(len(self.parts))
        priority = shard.job.slo.priority
        if priority >= self.priority:  # what lower ones added before stays counted against them
            self.priority = priority
            self.top_limit_s += seconds - self.seconds
        self.members.append(shard)
        self.parts.append(part)
        self.view += scan
        self.rows += rows
        self.pairs += more_pairs
        self.seconds = seconds
        self.due_s = min(self.due_s, shard.job.due_s)
        self.solo = self.solo or shard.solo
        self.lease = self.lease or (shard.job.request.is_lease and shard.job.lease_node is None)
        if part.view_key and part.view_to == shard.job.request.view_tokens:
            self.views.add(part.view_key)

    def _chunk(self, shard: Shard, cached: int, prefix: str) -> bool:
        """As much of the view as the cap and the limits take, then as many branches as still fit."""
        node, request = self.node, shard.job.request
        c0, c1, c2, c3 = node.coef
        budget, tokens = max(self.cap_s - c0, c0), node.spec.limits.pass_tokens
        left = request.view_tokens - cached
        scan = min(left, tokens, chunk_tokens(budget, c1, c3, cached, left))
        if request.is_lease and scan < left:
            scan = on_grid(cached, scan, min(left, tokens))
        budget -= c1 * scan + c3 * pairs(cached, cached + scan, 0)
        tokens -= scan
        hi, rows = shard.lo, 0
        while scan == left and hi < shard.hi:
            branch = request.branches[hi]
            price = (c2 + c3 * request.view_tokens) * (rows + branch)
            if (price > budget and (rows or scan)) or rows + branch > tokens:
                break
            rows, hi = rows + branch, hi + 1
        if scan + rows == 0:
            return False
        done = hi == shard.hi and scan == left
        part = Part(request.id, shard.index, cached, cached + scan, shard.lo, hi, rows, request.view_key, prefix,
                    done and request.is_lease, not done)  # fmt: skip
        more_pairs = pairs(cached, cached + scan, rows)
        seconds = c0 + c1 * scan + c2 * rows + c3 * more_pairs
        self._take(shard, part, seconds, scan, rows, more_pairs, False)
        return True


def chunk_tokens(budget_s: float, c1: float, c3: float, start: int, left: int) -> int:
    """View tokens that scan in `budget_s`; two fixed-point steps settle the quadratic term. At least one."""
    length = float(left)
    for _ in range(3 if c3 else 1):
        per_token = c1 + c3 * (start + length / 2.0)
        length = min(float(left), budget_s / per_token) if per_token > 0.0 else float(left)
    return max(1, int(length)) if left else 0


def on_grid(start: int, scan: int, most: int) -> int:
    """A prompt's chunk ends on the grid, so that it is cut alike whatever its chunks were: the last multiple within
    `scan`, else the next one, else `most`."""
    end = (start + scan) // GRID * GRID
    return end - start if end > start else min(most, start // GRID * GRID + GRID - start)


def compose(model: ModelState, node: NodeState, now_s: float, *, insist: bool = False) -> Draft | None:
    """The best next pass for a node that is free or about to be; None where it should rather idle. `insist`: whatever
    it can run, though others may be better at it."""
    draft = Draft(node, now_s)
    for priority in model.priorities:
        for shard in node.pinned:
            if shard.job.slo.priority == priority:
                draft.add(shard)
        if not draft.solo and not node.draining and len(model.queues[priority]):
            scan_queue(model, node, draft, priority, now_s, insist=insist)
        if draft.solo:
            break
    return draft if draft.members else None


def scan_queue(
    model: ModelState, node: NodeState, draft: Draft, priority: int, now_s: float, *, insist: bool = False
) -> None:
    queue = model.queues[priority]
    skip = 0
    if not draft.members and not insist:
        skip = skip_for(model, node, queue, priority, now_s)
        if skip >= len(queue):
            return
    misfits = 0
    taken = set(draft.members)
    full = len(node.leases) >= node.spec.limits.slots
    looked = 0
    for shard in islice(queue.scan(skip), PASSED_BY):
        if full and shard.job.request.max_tokens:
            continue
        looked += 1
        if looked > SCAN:
            return
        if shard in taken or (not insist and better_elsewhere(model, node, shard, now_s)):
            continue
        if draft.add(shard):
            taken.add(shard)
            if draft.solo:
                return
            misfits = 0
            pull_sharers(model, draft, shard, taken)
        elif draft.members:
            misfits += 1
            if misfits >= MISFITS:
                return


def pull_sharers(model: ModelState, draft: Draft, shard: Shard, taken: set[Shard]) -> None:
    key = shard.job.request.view_key
    if not key or key not in draft.views:
        return
    for other in islice(model.waiting.get(key, ()), SCAN):
        level = other.job.slo.priority
        if other not in taken and shard.job.slo.priority <= level <= draft.priority and draft.add(other):
            taken.add(other)
