"""Whether packed bytes are the bundle that their name says: unpacked in a process of their own, its hash compared.

Not in this one: a large tokenizer holds the interpreter for half a second, in which no pass goes out, and the bytes are
a stranger's. What that process does before it has said that it is ready, and that somebody else ends it, is no fault of
the bytes. Blocking: call it off the loop.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from mainspring.fleet.errors import BundleError

Check = Callable[[str, bytes], None]
"""Raises BundleError where the bytes are not the bundle with that hash."""

CHECK_S = 30.0
NOT_ONE = 2
READY = b"ready\n"
COMMAND = (sys.executable, "-m", "mainspring.text.identify")
TOLD_TO_END = (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)


class Unpacking:
    """A `Check`. BundleError for another hash, for bytes that are no bundle, and for such as crash or delay whoever
    unpacks them. OSError where no process can be started or it is told to end: nobody's fault but ours."""

    def __init__(self, command: tuple[str, ...] = COMMAND, within_s: float = CHECK_S) -> None:
        self.command, self.within_s = command, within_s
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False
        self._lock = threading.Lock()

    def __call__(self, bundle: str, data: bytes) -> None:
        code, out, errors = self._run(data)
        if self._stopped or code in TOLD_TO_END:
            raise OSError("the check of a bundle was told to end")
        if not out.startswith(READY):
            raise OSError(f"nothing unpacks bundles here: it ended with {code} before it began: {_tail(errors)}")
        if code is None:
            raise BundleError(f"the bundle was not unpacked within {self.within_s:g} s")
        if code == NOT_ONE:
            raise BundleError(f"these bytes are no bundle: {_tail(errors)}")
        if code:
            raise BundleError(f"whoever unpacks these bytes ends with {code}")
        if out.removeprefix(READY).decode(errors="replace").strip() != bundle:
            raise BundleError("the bundle has another hash than it goes by")

    def stop(self) -> None:
        """Ends what is under way, from another thread, and takes no more: a process that ends waits for nobody's
        bundle."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.kill()

    def _run(self, data: bytes) -> tuple[int | None, bytes, bytes]:
        """Exit status (None: killed after `within_s`), what it wrote on both outputs. It is waited for in any case."""
        with self._lock:
            if self._stopped:
                raise OSError("no bundle is checked any more")
            pipe = subprocess.PIPE
            # Of a session of its own: a terminal's interrupt is for us, who then say what comes of it.
            process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)  # noqa: S603
            self._running.add(process)
        try:
            return self._talk(process, data)
        finally:
            with self._lock:
                self._running.discard(process)

    def _talk(self, process: "subprocess.Popen[bytes]", data: bytes) -> tuple[int | None, bytes, bytes]:
        with process:
            try:
                out, errors = process.communicate(data, timeout=self.within_s)
            except subprocess.TimeoutExpired:
                process.kill()
                return None, *process.communicate()
            except BaseException:
                process.kill()
                raise
            return process.returncode, out, errors


def by_unpacking(bundle: str, data: bytes, command: tuple[str, ...] = COMMAND, within_s: float = CHECK_S) -> None:
    """One such check."""
    Unpacking(command, within_s)(bundle, data)


def _tail(errors: bytes) -> str:
    return errors[-300:].decode(errors="replace").strip()
