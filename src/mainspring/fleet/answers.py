"""Logits of parts by (pass id, index) until the core says `Answer`, then joined in branch order; checks lengths, NaN.

Also what a result says about its way: queueing, device time, nodes, retries, cached tokens.
"""

from collections.abc import Sequence

import numpy as np

from mainspring.core.cost import LONGEST_S
from mainspring.core.nouns import Pass
from mainspring.wire import messages as m


class Trail:
    """One open request: logits that came, and what it has been through. `began_s` is the first pass's begin."""

    __slots__ = ("arrival_s", "began_s", "cached", "device_s", "logits", "nodes", "passes", "sends")

    def __init__(self, arrival_s: float) -> None:
        self.arrival_s = arrival_s
        self.began_s: float | None = None
        self.device_s = 0.0
        self.passes = 0
        self.sends: dict[int, int] = {}
        self.cached: dict[int, int] = {}
        self.nodes: dict[str, None] = {}
        self.logits: dict[tuple[int, int], bytes] = {}


class Answers:
    def __init__(self) -> None:
        self._of: dict[str, Trail] = {}

    def __len__(self) -> int:
        return len(self._of)

    def open(self, request_id: str, now_s: float) -> None:
        self._of[request_id] = Trail(now_s)

    def close(self, request_id: str) -> None:
        self._of.pop(request_id, None)

    def sent(self, work: Pass) -> None:
        for index, part in enumerate(work.parts):
            trail = self._of.get(part.request_id)
            if trail is not None:
                kept = bool(part.prefix) or index in work.shares
                trail.cached.setdefault(part.shard, part.view_from if kept else 0)
                if not part.more:
                    trail.sends[part.shard] = trail.sends.get(part.shard, 0) + 1

    def began(self, work: Pass, when_s: float) -> None:
        for part in work.parts:
            trail = self._of.get(part.request_id)
            if trail is not None and trail.began_s is None:
                trail.began_s = max(trail.arrival_s, when_s)

    def queue_s(self, request_id: str) -> float:
        """From arrival to the first pass's begin; 0 before."""
        trail = self._of.get(request_id)
        return 0.0 if trail is None or trail.began_s is None else trail.began_s - trail.arrival_s

    def keep(self, work: Pass, pieces: dict[int, bytes], measured_s: float) -> None:
        """Logits of the parts that went well; those of requests settled meanwhile are forgotten."""
        seen: set[str] = set()
        for index, data in pieces.items():
            request_id = work.parts[index].request_id
            trail = self._of.get(request_id)
            if trail is None:
                continue
            trail.logits[work.id, index] = data
            if request_id not in seen:
                seen.add(request_id)
                trail.passes += 1
                trail.device_s += measured_s
                trail.nodes[work.node_id] = None

    def result(self, request_id: str, parts: Sequence[tuple[int, int]], late: bool, now_s: float) -> m.Result:
        """Raises KeyError for a part whose logits never came: a fault of ours."""
        trail = self._of[request_id]
        began_s = trail.arrival_s if trail.began_s is None else trail.began_s
        return m.Result(
            logits=b"".join(trail.logits[part] for part in parts),
            late=late,
            queue_s=began_s - trail.arrival_s,
            device_s=min(trail.device_s, LONGEST_S),
            total_s=now_s - trail.arrival_s,
            passes=trail.passes,
            retries=sum(count - 1 for count in trail.sends.values()),
            cached_tokens=min(trail.cached.values(), default=0),
            nodes=tuple(trail.nodes)[:1024],
        )


def split(logits: bytes, labels: Sequence[int], failed: Sequence[int] = ()) -> tuple[dict[int, bytes], set[int]]:
    """Logits by part index, and the parts whose logits can't be used: not finite, or all where the length is wrong.

    `labels[i]` is how many part i answers with; those in `failed` sent none and are in neither.
    """
    expected = [(index, count) for index, count in enumerate(labels) if index not in failed]
    if 4 * sum(count for _, count in expected) != len(logits):
        return {}, {index for index, _ in expected}
    finite = np.isfinite(m.f32(logits))
    sound = bool(finite.all())
    pieces: dict[int, bytes] = {}
    bad: set[int] = set()
    at = 0
    for index, count in expected:
        if sound or bool(finite[at : at + count].all()):
            pieces[index] = logits[4 * at : 4 * (at + count)]
        else:
            bad.add(index)
        at += count
    return pieces, bad
