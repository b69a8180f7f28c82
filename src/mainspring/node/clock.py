"""Monotone seconds that go on while the machine is suspended: CLOCK_BOOTTIME on Linux, CLOCK_MONOTONIC on macOS.

The one place in `node/` that reads a clock; everything else is given `now_s`.
"""

import sys
import time
from collections.abc import Callable

_CLOCK = getattr(time, "CLOCK_BOOTTIME", None) if sys.platform == "linux" else None


CallLater = Callable[[float, Callable[[], None]], object]
SHORTEST_S = 6e-4
"""A loop's timers are a millisecond coarse (uvloop rounds to the nearest): what is due sooner comes at once, finds that
it is too early and is set again, ten times and more a pass."""


def coarse(call_later: CallLater) -> CallLater:
    """`call_later` that does not spin: a little late instead of early over and over."""
    return lambda delay_s, do: call_later(max(SHORTEST_S, delay_s) if delay_s > 0.0 else 0.0, do)


def now_s() -> float:
    """Never goes back; its zero means nothing."""
    if _CLOCK is not None:
        return time.clock_gettime(_CLOCK)
    return time.monotonic()
