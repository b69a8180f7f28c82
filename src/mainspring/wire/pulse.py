"""Liveness of one link: when to ping, when the peer is dead, the smallest round trip, how stale what we read may be.

After a stop (SIGSTOP, a suspended machine, a blocked loop) the socket's buffer holds messages of unknown age. A
watchful side is looked at every `LOOK_S`; a longer gap was a stop, and from then until the pong of a ping sent after
waking everything that arrives is taken to be as old as the gap. Whoever slept does not blame the peer for the silence:
it gets another third of the idle timeout. The clock given must go on while the machine is suspended.
"""

from collections import deque

from mainspring.wire.control import Timing

LOOK_S = 0.1
STALL_S = 0.05
"""Later than due by so much counts as a stop; a busy loop's usual lateness stays below."""
SAMPLES = 16
FOREVER = float("inf")


class Pulse:
    def __init__(self, timing: Timing, now_s: float, *, watchful: bool = False) -> None:
        self.idle_s = timing.idle_s
        self.ping_s = timing.idle_s / 3.0
        self.age_s = 0.0
        self._look_s = LOOK_S if watchful else FOREVER
        self._looked_s = now_s
        self._heard_s = now_s
        self._pinged_s = now_s - self.ping_s  # the first ping goes at once: a round trip is wanted
        self._asked: dict[int, float] = {}
        self._nonce = 0
        self._awake_nonce = 0
        self._trips: deque[float] = deque(maxlen=SAMPLES)

    @property
    def round_trip_s(self) -> float:
        return min(self._trips, default=FOREVER)

    def heard(self, now_s: float) -> None:
        self._heard_s = now_s

    def dead(self, now_s: float) -> bool:
        return now_s - self._heard_s > self.idle_s

    def ping_due(self, now_s: float) -> int | None:
        """The nonce to send, None if it is not time."""
        if now_s < self._pinged_s + self.ping_s:
            return None
        self._pinged_s = now_s
        self._nonce += 1
        self._asked[self._nonce] = now_s
        if len(self._asked) > SAMPLES:
            del self._asked[next(iter(self._asked))]
        return self._nonce

    def ponged(self, nonce: int, held_s: float, now_s: float) -> None:
        """A nonce that was not sent, or not lately, proves nothing and is ignored."""
        sent_s = self._asked.pop(nonce, None)
        if sent_s is None:
            return
        self._trips.append(max(0.0, now_s - sent_s - held_s))
        if nonce >= self._awake_nonce:
            self.age_s = 0.0

    def look(self, now_s: float) -> None:
        """Every call of the link comes through here first."""
        gap_s = now_s - self._looked_s
        if gap_s <= STALL_S:  # neither of the two below can be: nearly every call
            self._looked_s = now_s
            return
        overdue_s = now_s - max(self._looked_s, self.deadline())
        if gap_s > self._look_s + STALL_S:
            self.age_s += gap_s
            self._awake_nonce = self._nonce + 1
            self._pinged_s = now_s - self.ping_s
        if overdue_s > STALL_S:
            self._heard_s = max(self._heard_s, now_s - self.idle_s + self.ping_s)
        self._looked_s = now_s

    def deadline(self) -> float:
        return min(self._heard_s + self.idle_s + 1e-6, self._pinged_s + self.ping_s, self._looked_s + self._look_s)
