"""One benchmark at a time: an exclusive lock that the kernel gives back however its holder ends.

`flock` on a file in the temporary directory, one per user. The file stays (deleting it would let two processes lock two
files of one name) and its content is only for the message: who holds the lock is the kernel's business, so a stale pid
after a crash locks nobody out. The descriptor closes on exec, so children a benchmark starts don't prolong the lock.
Not in XDG_RUNTIME_DIR: a cron job without it and a shell with it would hold two different locks. POSIX only.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from mainspring.errors import MainspringError


class LockHeldError(MainspringError):
    """Another benchmark still runs after the wait limit; `pid` is its process, None where it left none."""

    code: ClassVar[str] = "bench_locked"

    def __init__(self, pid: int | None, waited_s: float) -> None:
        holder = "an unknown process" if pid is None else f"pid {pid}"
        super().__init__(f"another benchmark holds the lock ({holder}); gave up after {waited_s:.0f} s")
        self.pid = pid


def default_path() -> Path:
    return Path(tempfile.gettempdir()) / f"mainspring-bench-{os.getuid()}.lock"


@contextmanager
def exclusive(
    path: Path,
    *,
    wait_limit_s: float,
    poll_s: float = 0.5,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
    sleep: Callable[[float], object] = time.sleep,
    say: Callable[[str], object] | None = None,
) -> Iterator[None]:
    """Hold the lock for the block; `say` hears once whom this process waits for.

    Raises LockHeldError when the lock stays held for `wait_limit_s` (0: try once).
    """
    # O_NOFOLLOW: the temporary directory is shared, and a planted link must not make us truncate its target.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        started_ns = clock_ns()
        told = False
        while not _try(descriptor):
            waited_s = (clock_ns() - started_ns) / 1e9
            if waited_s >= wait_limit_s:
                raise LockHeldError(_holder(descriptor), waited_s)
            if say is not None and not told:
                say(f"waiting for another benchmark (pid {_holder(descriptor)})")
                told = True
            sleep(poll_s)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)
            # Not left to close(): a child between fork and exec still has a copy of the descriptor.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
    return int(text) if text.isdecimal() else None
