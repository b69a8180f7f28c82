"""Whether and when a call is tried again: a pure decision, `now` and chance are arguments.

429, 503 and 504 are tried again, and so is a call whose connection broke: each carries an idempotency key, so that
the service does the work once. Where the service says when it would take the request, that is believed to the
millisecond and `x-should-retry` is obeyed; else the wait doubles with full jitter.
"""

import math
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

RETRIED = frozenset({408, 429, 502, 503, 504})
FIRST_S, LONGEST_S = 0.25, 8.0
SPREAD = 0.1
"""Callers told the same time would come back together: up to a tenth later each."""


class Retries(Struct, frozen=True):
    """`attempts` tries in all, within `total_s` from the first; a wait longer than `wait_s` is not waited."""

    attempts: Annotated[int, Meta(ge=1, le=100)] = 4
    total_s: float = 120.0
    wait_s: float = 60.0

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= 100:
            raise ValueError(f"attempts is {self.attempts}, from 1 to 100 are possible")
        if not (math.isfinite(self.total_s) and math.isfinite(self.wait_s) and min(self.total_s, self.wait_s) >= 0.0):
            raise ValueError("total_s and wait_s are finite and not negative")

    def after(
        self, attempt: int, status: int, headers: Mapping[str, str], *, elapsed_s: float, left_s: float | None,
        chance: float,
    ) -> float | None:  # fmt: skip
        """Seconds to wait before try `attempt` + 1, None: give up. `status` 0: the connection broke. `left_s`: of the
        caller's deadline. `headers` by lower-case names."""
        word = headers.get("x-should-retry", "").strip().lower()
        if attempt >= self.attempts or word == "false" or (status and status not in RETRIED and word != "true"):
            return None
        asked = told_s(headers)
        if asked is None:
            delay = min(LONGEST_S, FIRST_S * 2.0 ** (attempt - 1)) * chance
        else:
            delay = asked * (1.0 + SPREAD * chance)
            if asked > self.wait_s:
                return None
        if elapsed_s + delay > self.total_s or (left_s is not None and delay >= left_s):
            return None
        return delay


def told_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that the service asks to wait: `retry-after-ms`, else whole seconds of `Retry-After`. A date, or what is
    no number, says nothing."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            value = float(headers.get(name, ""))
        except ValueError:
            continue
        if math.isfinite(value) and value >= 0.0:
            return value * unit
    return None
