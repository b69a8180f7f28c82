"""How a node fares, for its reports: whether work ends well, and since when none has.

A dead device is visible: `idle_s` counts since a pass or a canary last ended well, and a canary runs whenever nothing
else has for `CANARY_S`. Three bad ends in a row are `failing`; one good one is not.
"""

from collections import Counter
from typing import Literal

State = Literal["starting", "ready", "busy", "draining", "failing"]
CANARY_S = 10.0
FAILING_AFTER = 3
BLAMELESS = frozenset({"late", "view_missing", "cancelled", "draining"})


class Health:
    def __init__(self, now_s: float) -> None:
        self.waiting = 0
        self.running = False
        self.draining = False
        self.passes = 0
        self.failures = 0
        self.reasons: Counter[str] = Counter()
        self._well_s = now_s
        self._bad = 0

    def ended(self, now_s: float, *, well: bool, is_pass: bool = True) -> None:
        """A pass, or with `is_pass` False a canary or a measurement."""
        self.passes += is_pass
        if well:
            self._well_s, self._bad = now_s, 0
        else:
            self._bad += 1

    def refused(self, reason: str) -> None:
        """`failures` are those that say something about this node or this work, not about time."""
        self.reasons[reason] += 1
        self.failures += reason not in BLAMELESS

    def idle_s(self, now_s: float) -> float:
        return max(0.0, now_s - self._well_s)

    def canary_s(self, free_s: float) -> float:
        """When to run one, if nothing else does; `free_s`: when the device was last at work."""
        return max(self._well_s, free_s) + CANARY_S

    @property
    def state(self) -> State:
        if self.draining:
            return "draining"
        if self._bad >= FAILING_AFTER:
            return "failing"
        return "busy" if self.running or self.waiting else "ready"
