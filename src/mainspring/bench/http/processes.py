"""CPU time and memory of other processes on this machine, from /proc (Linux)."""

import os
from pathlib import Path

from msgspec import Struct

PROC = Path("/proc")


class Use(Struct, frozen=True):
    """CPU seconds since the process began, all its threads, and MiB resident. `waited_s`: how long its threads that
    live now could have run and had no core."""

    cpu_s: float
    rss_mib: float
    waited_s: float = 0.0


def use_of(pid: int, root: Path = PROC) -> Use:
    """OSError where there is no such process."""
    text = (root / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    fields = text.rpartition(")")[2].split()
    ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
    waited_s = sum(map(_waited_s, (root / str(pid)).glob("task/*/schedstat")))
    return Use(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20), waited_s)


def _waited_s(path: Path) -> float:
    """Of one thread; 0 for one that ended meanwhile."""
    try:
        return int(path.read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def pin(core: int | None) -> None:
    """This process on one core, where the system can."""
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
