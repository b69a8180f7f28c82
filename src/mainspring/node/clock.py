"""Monotone seconds that go on while the machine is suspended: CLOCK_BOOTTIME on Linux, CLOCK_MONOTONIC on macOS.

The one place in `node/` that reads a clock; everything else is given `now_s`.
"""

import sys
import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", None) if sys.platform == "linux" else None


def now_s() -> float:
    """Never goes back; its zero means nothing."""
    if _CLOCK is not None:
        return time.clock_gettime(_CLOCK)
    return time.monotonic()
