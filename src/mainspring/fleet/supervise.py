"""Local nodes as child processes: restarted with backoff, given up in a crash loop, stopped with their parent.

`Restarts` decides without a clock; `Children` starts processes, keeps their logs in rotated files and tells the shell
of an exit, so that a dead child is a crash at once and not after the idle timeout. On Linux a child is killed when its
parent dies, however that happens; elsewhere only where the parent ends in good order.
"""

import asyncio
import ctypes
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

log = logging.getLogger("mainspring.fleet")

FIRST_S, LONGEST_S = 0.5, 30.0
STEADY_S = 60.0
CRASHES, WINDOW_S = 5, 60.0
LOG_BYTES, LOG_FILES = 10 << 20, 3
PR_SET_PDEATHSIG = 1


class Restarts:
    """When one child is started again: backoff doubled per crash, from the start after a minute that lasted; None after
    `CRASHES` within `WINDOW_S`."""

    def __init__(self) -> None:
        self._exits: deque[float] = deque(maxlen=CRASHES)
        self._began_s = 0.0
        self._delay_s = FIRST_S

    def started(self, now_s: float) -> None:
        self._began_s = now_s

    def exited(self, now_s: float) -> float | None:
        """Seconds to wait, None to give up."""
        if now_s - self._began_s >= STEADY_S:
            self._delay_s = FIRST_S
            self._exits.clear()
        self._exits.append(now_s)
        if len(self._exits) == CRASHES and now_s - self._exits[0] < WINDOW_S:
            return None
        delay_s = self._delay_s
        self._delay_s = min(LONGEST_S, 2.0 * delay_s)
        return delay_s


class LogFile:
    """What a child prints, in files of at most `size` bytes, the oldest dropped. A full disk loses lines, not nodes:
    nothing here raises."""

    def __init__(self, path: Path, size: int = LOG_BYTES, files: int = LOG_FILES) -> None:
        self.path, self._size, self._files = path, size, files
        self._file: FileIO | None = None
        self._lost = False

    def write(self, data: bytes) -> None:
        try:
            file = self._open()
            if file.tell() + len(data) > self._size:
                self._rotate()
                file = self._open()
            file.write(data)
            self._lost = False
        except OSError as error:
            if not self._lost:  # once: the router's own log may be on that disk
                log.warning("%s: %s; lines are lost", self.path, error)
            self._lost = True

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def _open(self) -> FileIO:
        """Unbuffered: what a full disk did not take must not be tried again when the file is closed."""
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab", buffering=0)
        return self._file

    def _rotate(self) -> None:
        self.close()
        for number in range(self._files - 1, 0, -1):
            older = self.path.with_suffix(f".log.{number}")
            newer = self.path if number == 1 else self.path.with_suffix(f".log.{number - 1}")
            if newer.exists():
                newer.replace(older)


class Children:
    """`commands` by name; `exited(name)` is told of every exit, `gave_up(name)` of the last. Within one event loop."""

    def __init__(
        self, commands: Mapping[str, Sequence[str]], logs: Path, exited: Callable[[str], None],
        gave_up: Callable[[str], None], now_s: Callable[[], float], before: Callable[[str], None] | None = None,
    ) -> None:  # fmt: skip
        self._commands, self._logs, self._now_s = commands, logs, now_s
        self._exited, self._gave_up, self._before = exited, gave_up, before
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._keepers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._keepers = [asyncio.create_task(self._keep(name), name=f"node {name}") for name in self._commands]

    def pid(self, name: str) -> int | None:
        process = self._running.get(name)
        return None if process is None else process.pid

    async def stop(self, within_s: float) -> None:
        """SIGTERM, so that they drain; SIGKILL for who is still there after that."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        running = list(self._running.values())
        for process in running:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        waits = [asyncio.create_task(process.wait()) for process in running]
        if waits:
            await asyncio.wait(waits, timeout=within_s)
        for process in running:
            if process.returncode is None:
                log.warning("process %d did not end within %g s and was killed", process.pid, within_s)
                with suppress(ProcessLookupError):
                    process.kill()
        await asyncio.gather(*waits)
        self._running.clear()

    async def _keep(self, name: str) -> None:
        restarts = Restarts()
        while True:
            restarts.started(self._now_s())
            code = await self._run(name)
            self._exited(name)
            delay_s = restarts.exited(self._now_s())
            if delay_s is None:
                log.error(
                    "node %s ended with %s, for the %dth time in %g s: it is left alone now; its log is %s",
                    name, code, CRASHES, WINDOW_S, self._logs / f"{name}.log",
                )  # fmt: skip
                self._gave_up(name)
                return
            log.warning("node %s ended with %s and is started again in %g s", name, code, delay_s)
            await asyncio.sleep(delay_s)

    async def _run(self, name: str) -> int | str:
        """One life of the child; its exit code, or why it could not be started."""
        try:
            if self._before is not None:
                self._before(name)
            process = await asyncio.create_subprocess_exec(
                *self._commands[name],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                preexec_fn=die_with(os.getpid()) if sys.platform == "linux" else None,
            )
        except Exception as error:  # a file that is not there, no memory, no certificate: all are tried again
            return f"{type(error).__name__}: {error}"
        self._running[name] = process
        log.info("node %s is process %d", name, process.pid)
        file = LogFile(self._logs / f"{name}.log")
        try:
            assert process.stdout is not None  # noqa: S101 - asked for above
            while data := await process.stdout.read(64 << 10):
                file.write(data)
            code = await process.wait()
        finally:
            file.close()
        del self._running[name]
        return code


def die_with(parent: int) -> Callable[[], None]:
    """Run in the child before it becomes the program: killed when the parent is gone, also if that is already so."""
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return prepare
