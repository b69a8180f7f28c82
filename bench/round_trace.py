"""What a profiler's trace says of steady rounds: host waits, and how long the device had nothing to do.

The trace is the profiler's Chrome format; only what lies in the span named STEADY counts. A wait is a call of the
runtime or driver that returns when the device got somewhere; a copy between the device and memory that is not pinned
is one too, whatever the call is named. Busy is the union of kernels, copies and fills, so two at once count once.
Recording itself costs the host time: the idle share within the trace is an upper bound, that of the same work over an
unrecorded round's wall clock is the one to quote.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct

STEADY = "steady rounds"
CALLS = ("cuda_runtime", "cuda_driver")
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
WAITS = frozenset({
    "cudaEventSynchronize", "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaMemcpy", "cudaMemcpy2D",
    "cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize", "cuMemcpy", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2",
})  # fmt: skip


class RoundTrace(Struct, frozen=True):
    """Of `rounds` rounds. `waits` by call, `copies` unpinned ones by direction, `launches` kernels the device ran."""

    rounds: int
    wall_us: float
    busy_us: float
    launches: int
    waits: dict[str, int]
    copies: dict[str, int]

    def idle(self, round_us: float | None = None) -> float:
        """Share of a round without device work; of `round_us` unrecorded ones, else of the trace's own."""
        wall_us = self.wall_us / self.rounds if round_us is None else round_us
        return 1.0 - self.busy_us / self.rounds / wall_us

    def counted(self) -> str:
        """Waits and unpinned copies a round."""
        found = {**self.waits, **self.copies}
        return ", ".join(f"{name} {count / self.rounds:.2f}" for name, count in sorted(found.items())) or "none"


def record(run: Callable[[], object], rounds: int, warmups: int = 5) -> RoundTrace:
    """Of `rounds` calls of `run` on the CUDA device, after some that the recorder warms up with."""
    import torch

    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as seen:
        for _ in range(warmups):
            run()
        with torch.profiler.record_function(STEADY):
            for _ in range(rounds):
                run()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(path))
        return read(json.loads(path.read_bytes()), rounds)


def read(trace: dict[str, Any], rounds: int) -> RoundTrace:
    """ValueError where the span is missing, or nothing ran on a device within it."""
    events = [each for each in trace["traceEvents"] if each.get("ph") == "X"]
    spans = [each for each in events if each.get("cat") == "user_annotation" and each["name"] == STEADY]
    if len(spans) != 1:
        raise ValueError(f"the trace has {len(spans)} spans named {STEADY!r}")
    begin, end = float(spans[0]["ts"]), float(spans[0]["ts"]) + float(spans[0]["dur"])
    waits: Counter[str] = Counter()
    copies: Counter[str] = Counter()
    work, launches = [], 0
    for each in events:
        at, kind, name = float(each["ts"]), each.get("cat"), each["name"]
        starts_within = begin <= at < end
        if kind in CALLS and name in WAITS and starts_within:
            waits[name] += 1
        elif kind in WORK:
            work.append((max(at, begin), min(at + float(each["dur"]), end)))
            launches += kind == "kernel" and starts_within
            if kind == "gpu_memcpy" and "Pageable" in name and starts_within:
                copies[name] += 1
    busy_us = _union(work)
    if not busy_us:
        raise ValueError("the trace has no device work in it: does the profiler see the device?")
    return RoundTrace(rounds, end - begin, busy_us, launches, dict(waits), dict(copies))


def _union(intervals: list[tuple[float, float]]) -> float:
    """Total length; those that end before they begin lie outside the span."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(each for each in intervals if each[0] < each[1]):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total
