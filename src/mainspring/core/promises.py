"""Outstanding retry times of one model and priority.

A refused client told "in 3 s" will come back with its work; the next refusal must count that work ahead of itself, or a
hundred clients return at once. Promises only shift later promises: admission never looks here, they reserve nothing.
A promise goes when a like request is admitted at its time, or `GRACE_S` after it.
"""

from heapq import heappop, heappush

from mainspring.core.nouns import NO_WORK, Work

GRACE_S = 1.0
MAX_RETRY_S = 60.0


class Promises:
    __slots__ = ("_heap", "total")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Work]] = []
        self.total: Work = NO_WORK

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, ready_s: float, seq: int, work: Work) -> None:
        heappush(self._heap, (ready_s, seq, work))
        t = self.total
        self.total = (t[0] + work[0], t[1] + work[1], t[2] + work[2], t[3] + work[3])

    def prune(self, now_s: float) -> None:
        while self._heap and self._heap[0][0] + GRACE_S < now_s:
            self._pop()

    def redeem(self, now_s: float) -> None:
        """Somebody was admitted: take it for whoever was promised to be next, if that time has come."""
        if self._heap and self._heap[0][0] <= now_s + 0.01:
            self._pop()

    def _pop(self) -> None:
        _, _, work = heappop(self._heap)
        t = self.total
        self.total = (t[0] - work[0], t[1] - work[1], t[2] - work[2], t[3] - work[3])
