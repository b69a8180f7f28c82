"""Work that blocks (disk, hashes, a check), off the loop, and its end back in the shell."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from mainspring.faultlog import log_fault

if TYPE_CHECKING:
    from mainspring.fleet.shell import Shell

log = logging.getLogger("mainspring.fleet")

Done = Callable[[object, float], None]
"""Called with what the work gave, or the exception it raised, and the time."""
Blocking = Callable[[Callable[[], object], Done], None]


class OffLoop:
    """`blocking` runs the work elsewhere; without it it is done on the spot, as virtual time wants it."""

    def __init__(self, shell: "Shell") -> None:
        self.shell = shell
        self.blocking: Blocking | None = None

    def run(self, work: Callable[[], object], done: Done, now_s: float) -> None:
        """`done` follows: after the current turn, or in one of its own."""
        if self.blocking is not None:
            self.blocking(work, self._back(done))
            return
        outcome = attempt(work)
        self.shell.later(lambda: self.shielded(done, outcome, now_s))

    def shielded(self, done: Done, outcome: object, now_s: float) -> None:
        """One fault must not stop the loop."""
        try:
            done(outcome, now_s)
        except Exception as error:
            log_fault(log, error, "a fault after work off the loop")
            self.shell.tally.count("faults")

    def _back(self, done: Done) -> Done:
        def back(outcome: object, now_s: float) -> None:
            self.shell.later(lambda: self.shielded(done, outcome, now_s))
            self.shell.settle(now_s)

        return back


def attempt(work: Callable[[], object]) -> object:
    """What it gives, or the exception it raised."""
    try:
        return work()
    except Exception as error:
        return error
