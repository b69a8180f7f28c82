"""A node's own order of work: passes as the router sent them, rounds between them, nothing run too late.

Shared by real nodes and the simulator. Rules: passes run first in, first out; one not begun within its `start_within_s`
comes back as late, never run; while streams live, a round goes first whenever the next pass would hold the tightest
stream beyond its gap, or nothing else is there; after a round a pass has its turn, however long it is. Keys that
waiting passes build on are pinned: not to be evicted. While `paused`, nobody takes tokens and no round is run.
"""

from collections import deque

from msgspec import Struct

from mainspring.core.nouns import Lease, Pass

DEFAULT_GAP_S = 1.0
"""Gap between rounds kept for streams that were promised no rate."""


class RunPass(Struct, frozen=True):
    work: Pass


class RunRound(Struct, frozen=True):
    request_ids: tuple[str, ...]


class ComeLate(Struct, frozen=True):
    work: Pass


class Idle(Struct, frozen=True):
    pass


Step = RunPass | RunRound | ComeLate | Idle


class Agenda:
    """`now_s` is the node's own clock; only durations came over the wire."""

    __slots__ = ("_leases", "_live", "_queue", "_round_end_s", "_round_s", "_rounded", "paused", "tokens_a_round")

    def __init__(self, tokens_a_round: float = 1.0) -> None:
        self._queue: deque[tuple[float, Pass]] = deque()
        self._leases: dict[str, Lease] = {}
        self._live: dict[str, Lease] = {}
        self._round_end_s = 0.0
        self._round_s = 0.0
        self._rounded = False
        self.paused = False
        self.tokens_a_round = tokens_a_round

    def add(self, work: Pass, now_s: float) -> None:
        self._queue.append((now_s + work.start_within_s, work))

    def drop(self, pass_id: int) -> bool:
        """The router takes it back; False where it already began or was never here."""
        before = len(self._queue)
        self._queue = deque(entry for entry in self._queue if entry[1].id != pass_id)
        return len(self._queue) < before

    def late(self, now_s: float) -> list[Pass]:
        """Waiting passes whose window closed while something else ran; they leave the agenda with this call."""
        late = [work for latest, work in self._queue if now_s > latest]
        if late:
            self._queue = deque(entry for entry in self._queue if now_s <= entry[0])
        return late

    def deadline_s(self) -> float:
        """When the next window closes, infinite where nothing waits."""
        return min((latest for latest, _ in self._queue), default=float("inf"))

    def clear(self) -> list[Pass]:
        """Forget all: the router is gone. What had not begun, in order."""
        waiting = [work for _, work in self._queue]
        self._queue.clear()
        self._leases.clear()
        self._live.clear()
        return waiting

    def open(self, lease: Lease) -> None:
        """Known before its prompt is scanned; it joins the rounds when `begin` is called."""
        self._leases[lease.request_id] = lease

    def begin(self, request_id: str, now_s: float) -> bool:
        """Its prompt is in: rounds may start."""
        lease = self._leases.get(request_id)
        if lease is None:
            return False
        if not self._live:
            self._round_end_s = now_s
        self._live[request_id] = lease
        return True

    def close(self, request_id: str) -> None:
        self._leases.pop(request_id, None)
        self._live.pop(request_id, None)

    def next(self, now_s: float) -> Step:
        """What to do now. A pass or a late one leaves the agenda with this call."""
        rounds = bool(self._live) and not self.paused
        if not self._queue:
            return RunRound(tuple(self._live)) if rounds else Idle()
        latest, work = self._queue[0]
        if now_s > latest:
            self._queue.popleft()
            return ComeLate(work)
        if rounds and self._starves(work, now_s):
            return RunRound(tuple(self._live))
        self._queue.popleft()
        self._rounded = False
        return RunPass(work)

    def round_done(self, took_s: float, now_s: float) -> None:
        self._round_s = took_s
        self._round_end_s = now_s
        self._rounded = True

    def _starves(self, work: Pass, now_s: float) -> bool:
        """Running it now would keep a stream waiting beyond its gap; right after a round it may run in any case."""
        if self._rounded:
            return False
        gap = min((lease.token_s or DEFAULT_GAP_S) for lease in self._live.values()) * self.tokens_a_round
        return now_s + work.predicted_s + self._round_s > self._round_end_s + gap

    def pinned(self) -> set[str]:
        """Checkpoints that waiting passes build on."""
        return {key for _, work in self._queue for part in work.parts for key in (part.view_key, part.prefix) if key}

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def live(self) -> int:
        return len(self._live)
