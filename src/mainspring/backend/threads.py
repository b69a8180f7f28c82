"""How many threads the CPU's products should use, by measurement.

Every product ends at a barrier, so one thread that waits for a busy core holds up all: beside a noisy neighbour two
threads fell to a third of what one kept (260 against 900 tokens/s), and the core count can't tell. A few products of a
pass's size decide, in about 0.05 s: loading waits for it.
"""

import time
from collections.abc import Callable

import torch

ROWS, INNER, OUT = 512, 512, 1024
REPEATS, WARM = 5, 1


def choose_threads(available: int | None = None, timer: Callable[[int], float] | None = None) -> int:
    """The fastest of all, half and one thread; `timer(threads)` gives the median seconds of a product."""
    available = available or torch.get_num_threads()
    candidates = sorted({available, max(available // 2, 1), 1}, reverse=True)
    if len(candidates) == 1:
        return available
    timer = timer or _median_seconds
    seconds = {threads: timer(threads) for threads in candidates}
    return min(candidates, key=lambda threads: seconds[threads])


def _median_seconds(threads: int) -> float:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x, weight = torch.ones(ROWS, INNER), torch.ones(OUT, INNER)
        samples = []
        for _ in range(REPEATS + WARM):
            started = time.perf_counter()
            torch.nn.functional.linear(x, weight)
            samples.append(time.perf_counter() - started)
        return sorted(samples[WARM:])[REPEATS // 2]
    finally:
        torch.set_num_threads(before)
