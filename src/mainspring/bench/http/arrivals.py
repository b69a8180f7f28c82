"""When requests leave: times fixed before the run, so that a slow answer never delays the next request.

A closed loop asks again when it was answered and so leaves out just the requests that would have waited (coordinated
omission). Latency here counts from the planned time, whatever kept the request from leaving then.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np

Pattern = Literal["poisson", "even"]
BLOCK = 4096


def arrivals(rate: float, seconds: float, pattern: Pattern = "poisson", seed: int = 0) -> Iterator[float]:
    """Seconds from the start, below `seconds`; `rate` a second on average."""
    if not 0.0 < rate <= 1e6 or not 0.0 < seconds <= 86_400.0:
        raise ValueError("a rate of up to a million a second for up to a day is possible")
    if pattern == "even":
        yield from (index / rate for index in range(int(np.ceil(rate * seconds))))
        return
    rng = np.random.default_rng(seed)
    at = 0.0
    while True:
        for gap in rng.exponential(1.0 / rate, BLOCK).tolist():
            at += gap
            if at >= seconds:
                return
            yield at
