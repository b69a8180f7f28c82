"""When to dial again. Pure: an outcome and a number drawn by the caller give a delay.

Full jitter: anything up to a bound that doubles with each failure, from 0.2 to 30 s, so that a fleet does not come back
all at once; back to the start after a link that lasted a minute. After a hopeless close (`wire.errors.HOPELESS`) at
once the longest bound. Which transport is the dialer's affair (`wire.dial`). Source of the jitter: Brooker, Exponential
Backoff And Jitter, 2015.
"""

from dataclasses import dataclass

from mainspring.wire.errors import HOPELESS, Close

FIRST_S = 0.2
LONGEST_S = 30.0
LEAST_S = 0.05
STEADY_S = 60.0
"""A link that lasted so long was a sound one."""


@dataclass(frozen=True)
class Ending:
    """How a dialling or a link ended. `lasted_s` since the welcome, None where there was none; `close` None: nobody
    answered."""

    close: Close | None
    message: str = ""
    lasted_s: float | None = None


class Redial:
    """There is no last attempt: a node comes back whenever its router does. What is bounded is the rate."""

    def __init__(self) -> None:
        self._bound_s = FIRST_S

    def next(self, ending: Ending, chance: float) -> float:
        """Seconds to wait, from 0.05 to 30. `chance` in [0, 1) is drawn by the caller."""
        if ending.lasted_s is not None and ending.lasted_s >= STEADY_S:
            self._bound_s = FIRST_S
        if ending.close in HOPELESS:
            self._bound_s = LONGEST_S
            return LONGEST_S * (0.5 + 0.5 * chance)
        delay_s = max(LEAST_S, self._bound_s * chance)
        self._bound_s = min(LONGEST_S, 2.0 * self._bound_s)
        return delay_s
