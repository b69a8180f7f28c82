"""Monotone seconds that go on while the machine is suspended: what the shell and the client are given as `now_s`.

The one place in `fleet/` that reads a clock, beside the wall clock of certificates (`wire`).
"""

import sys
import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", None) if sys.platform == "linux" else None


def now_s() -> float:
    """Never goes back; its zero means nothing."""
    return time.clock_gettime(_CLOCK) if _CLOCK is not None else time.monotonic()
