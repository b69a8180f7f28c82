"""Monotone seconds that go on while the machine is suspended: what the shell and the client are given as `now_s`.

The one place in `fleet/` that reads a clock, beside the wall clock of certificates (`wire`).
"""

import sys
import time
from collections.abc import Callable
from functools import partial

_CLOCK = getattr(time, "CLOCK_BOOTTIME", None) if sys.platform == "linux" else None

now_s: Callable[[], float] = time.monotonic if _CLOCK is None else partial(time.clock_gettime, _CLOCK)
"""Never goes back; its zero means nothing. Read thirty times a request, so without a function of ours around it."""
