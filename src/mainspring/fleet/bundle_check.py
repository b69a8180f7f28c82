"""Whether packed bytes are the bundle that their name says: unpacked in a process of their own, its hash compared.

Not in this one: a large tokenizer holds the interpreter for half a second, in which no pass goes out, and the bytes are
a stranger's. Blocking: call it off the loop.
"""

import subprocess
import sys
from collections.abc import Callable

from mainspring.fleet.errors import BundleError

Check = Callable[[str, bytes], None]
"""Raises BundleError where the bytes are not the bundle with that hash."""

CHECK_S = 30.0
NOT_ONE = 2
COMMAND = (sys.executable, "-m", "mainspring.text.identify")


def by_unpacking(bundle: str, data: bytes, command: tuple[str, ...] = COMMAND, within_s: float = CHECK_S) -> None:
    """BundleError for another hash, for bytes that are no bundle, and for such as crash or delay whoever unpacks them.
    OSError where no process can be started: nobody's fault but ours."""
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=within_s, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise BundleError(f"the bundle was not unpacked within {within_s:g} s") from None
    if done.returncode == NOT_ONE:
        raise BundleError(f"these bytes are no bundle: {done.stderr[-300:].decode(errors='replace').strip()}")
    if done.returncode:
        raise BundleError(f"whoever unpacks these bytes ends with {done.returncode}")
    if done.stdout.decode(errors="replace").strip() != bundle:
        raise BundleError("the bundle has another hash than it goes by")
