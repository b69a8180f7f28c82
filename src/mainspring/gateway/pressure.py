"""Whether this process can take one more: its own lateness and line, not the fleet's. Pure; time is an argument.

The router predicts what nodes can do and knows nothing of the gateway's own loop, in which a request passes eight or so
turns. Where turns get long everything waits, refusals too, so requests are refused here while that is still cheap:
before a body is read. Two signs are looked at. *Lateness*: a timer that should come every `BEAT_S`, and how late it
came; the median of the last few, since one long turn (a collection, a neighbour on the core) is no standing queue; and
only beside `LEAST_OPEN` open requests, since with few of them it is others that hold the core.
*Line*: bodies that are read and wait to become tokens, times the seconds between two that do while others wait: all
that the process does for a request is in these, since between two texts the loop sees to everybody else (`turnstile`).
"""

from collections import deque
from statistics import median

from mainspring.gateway.errors import BusyError

BEAT_S = 0.05
BEATS = 5
FIRST_S = 0.001
"""Taken for a text's time before any was measured: who has not begun yet refuses nobody by a guess."""
STEP = 0.1
"""Of the running mean, a measurement."""
LEAST_OPEN = 16
LONGEST_S = 1.0
"""A pause longer than this between two texts was no work."""
MOST_RETRY_S = 60.0


class Pressure:
    """`late_s`: lateness that is borne; `line_s`: how long a text may have to wait for its turn."""

    def __init__(self, late_s: float, line_s: float) -> None:
        self._late_s, self._line_s = late_s, line_s
        self._beats: deque[float] = deque([0.0], maxlen=BEATS)
        self._busy_from_s = 0.0
        self._promised_s = float("-inf")
        self.line = 0
        self.each_s = FIRST_S
        self.shed = 0

    @property
    def late_s(self) -> float:
        """Seconds, the median of the last beats."""
        return median(self._beats)

    def beat(self, due_s: float, now_s: float) -> None:
        """The timer that was due at `due_s` came."""
        self._beats.append(max(0.0, now_s - due_s))

    def enter(self, now_s: float) -> None:
        """A text is there; `leave` must follow."""
        if not self.line:
            self._busy_from_s = now_s
        self.line += 1

    def waited(self, now_s: float) -> None:
        """For what is no work of this process, a bundle that had to be fetched: that costs the next text nothing."""
        self._busy_from_s = now_s

    def leave(self, now_s: float) -> None:
        """It is tokens, or over: what lies between two ends while others wait is what one costs here."""
        self.line -= 1
        took_s = now_s - self._busy_from_s
        self._busy_from_s = now_s
        if 0.0 <= took_s <= LONGEST_S:
            self.each_s += STEP * (took_s - self.each_s)

    def check(self, now_s: float, others: int) -> None:
        """`others` are open here. BusyError where one more would wait too long; whoever is refused gets a turn of its
        own to come back, behind the line and behind those who were told to come before."""
        late_s = self.late_s
        if late_s > self._late_s and others >= LEAST_OPEN:
            raise self._refusal(now_s, "late_s", "this gateway is behind", self._late_s, late_s)
        self.check_line(now_s)

    def check_line(self, now_s: float) -> None:
        """The line alone: once more where a body has been read, as those of a burst are let in all at once, before
        any of them stands in line. BusyError."""
        wait_s = self.line * self.each_s
        if wait_s > self._line_s:
            raise self._refusal(now_s, "line_s", "texts wait to be tokenised", self._line_s, wait_s)

    def _refusal(self, now_s: float, name: str, what: str, limit_s: float, actual_s: float) -> BusyError:
        self.shed += 1
        free_s = now_s + self.late_s + self.line * self.each_s
        self._promised_s = min(max(self._promised_s, free_s) + self.each_s, now_s + MOST_RETRY_S)
        return BusyError(
            f"limits.{name}: {what}, at most {limit_s:g} s", retry_after_s=self._promised_s - now_s, limit=limit_s,
            actual=round(actual_s, 3),
        )  # fmt: skip
