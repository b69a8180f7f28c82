"""What everybody else on the machine uses, before a measurement (the gate) and during each of its samples.

Others' share = CPU time of all processes minus our own tree's, over wall time, in cores. Linux counts both exactly, in
ticks of 10 ms (a 20 ms sample is known to half a core, so sums over samples are what reports quote). Elsewhere the
one-minute load average stands in, for the gate only: it contains ourselves and lags, so samples record None.
The gate never hides a failure: it says what it saw, and the report says it loudly.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec


class Mark(NamedTuple):
    """Counters at one instant; differences of two mean something."""

    at_s: float
    all_s: float  # CPU seconds of every process
    own_s: float  # CPU seconds of this process and its descendants


class LoadSource(Protocol):
    cores: int

    def mark(self) -> Mark: ...

    def others_since(self, mark: Mark, /) -> float | None:
        """Cores used by others on average since `mark`; None where that can't be measured."""

    def others_now(self, mark: Mark, /) -> float:
        """The gate's figure: as `others_since`, or an estimate where there is nothing better."""


class ProcStat:
    """Linux: /proc/stat and the /proc/*/stat of this process's tree."""

    def __init__(self, root: Path = Path("/proc"), clock: Callable[[], float] = time.perf_counter) -> None:
        self.cores = os.cpu_count() or 1
        self._root = root
        self._clock = clock
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")

    def mark(self) -> Mark:
        fields = (self._root / "stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in fields[:8])
        # Steal counts as others: another guest had the core. Guest time is in user and nice already.
        busy = user + nice + system + irq + softirq + steal
        return Mark(self._clock(), busy * self._tick_s, tree_ticks(self._root, os.getpid()) * self._tick_s)

    def others_since(self, mark: Mark) -> float | None:
        now = self.mark()
        wall_s = now.at_s - mark.at_s
        if wall_s <= 0:
            return None
        # Not clamped at zero: the two counters tick apart, and only unclamped errors cancel in a sum.
        return ((now.all_s - mark.all_s) - (now.own_s - mark.own_s)) / wall_s

    def others_now(self, mark: Mark) -> float:
        return max(0.0, self.others_since(mark) or 0.0)


class LoadAverage:
    """Anywhere else with getloadavg: good enough to wait by, not to record beside a sample."""

    def __init__(self) -> None:
        self.cores = os.cpu_count() or 1

    def mark(self) -> Mark:
        return Mark(0.0, 0.0, 0.0)

    def others_since(self, _mark: Mark, /) -> float | None:
        return None

    def others_now(self, _mark: Mark, /) -> float:
        return os.getloadavg()[0]


def system_source() -> LoadSource:
    return ProcStat() if sys.platform == "linux" else LoadAverage()


def tree_ticks(root: Path, pid: int) -> int:
    """User and system ticks of `pid`, its living descendants, and children each of them has reaped."""
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in root.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # ended since iterdir
            continue
        fields = text.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
        child = int(entry.name)
        parents.setdefault(int(fields[1]), []).append(child)
        ticks[child] = sum(int(field) for field in fields[11:15])
    total, queue = 0, [pid]
    while queue:
        current = queue.pop()
        total += ticks.get(current, 0)
        queue.extend(parents.get(current, ()))
    return total


class Gate(msgspec.Struct, frozen=True):
    """How the wait for quiet ended: `others_cores` at the last look, against the limit."""

    quiet: bool
    waited_s: float
    others_cores: float
    limit_cores: float


def wait_until_quiet(
    source: LoadSource,
    *,
    limit_share: float,
    wait_limit_s: float,
    look_s: float = 1.0,
    sleep: Callable[[float], object] = time.sleep,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
    say: Callable[[str], object] | None = None,
) -> Gate:
    """Look for `look_s` at a time until others use less than `limit_share` of the cores, or the limit has passed.

    At least one look is taken, whatever the limit.
    """
    limit_cores = limit_share * source.cores
    started_ns = clock_ns()
    told = False
    while True:
        mark = source.mark()
        sleep(look_s)
        others = source.others_now(mark)
        waited_s = (clock_ns() - started_ns) / 1e9
        if others < limit_cores or waited_s >= wait_limit_s:
            return Gate(others < limit_cores, waited_s, others, limit_cores)
        if say is not None and not told:
            say(f"waiting for quiet: others use {others:.2f} cores, limit {limit_cores:.2f}")
            told = True
