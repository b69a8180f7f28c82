"""CPU time and memory of other processes on this machine, from /proc (Linux)."""

import os
from pathlib import Path

from msgspec import Struct

PROC = Path("/proc")


class Use(Struct, frozen=True):
    """CPU seconds since the process began, all its threads, and MiB resident."""

    cpu_s: float
    rss_mib: float


def use_of(pid: int, root: Path = PROC) -> Use:
    """OSError where there is no such process."""
    text = (root / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    fields = text.rpartition(")")[2].split()
    ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
    return Use(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20))


def pin(core: int | None) -> None:
    """This process on one core, where the system can."""
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
