"""Stop strings in a text that comes in pieces: nothing that may be the beginning of one is let through.

The earliest end wins: of two stop strings the one that is complete first; of two that end together the longer, which
begins first. Pure; the work a character is bounded by the number of stop strings and their lengths.
"""

from collections.abc import Sequence


class Stops:
    """`stops` are not empty texts. Feed `push` until it says that one is complete, else end with `finish`."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(dict.fromkeys(stops))
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.found: str | None = None

    @property
    def held(self) -> int:
        """Characters that are not let through yet."""
        return len(self._held)

    def push(self, text: str) -> str:
        """What is sure to stand before any stop string. After `found` is set nothing comes any more."""
        if self.found is not None:
            return ""
        if not self._stops:
            return text
        whole, known = self._held + text, len(self._held)
        for end in range(known + 1, len(whole) + 1):
            hit = max((stop for stop in self._stops if whole.endswith(stop, 0, end)), key=len, default=None)
            if hit is not None:
                self.found, self._held = hit, ""
                return whole[: end - len(hit)]
        keep = self._may_begin(whole)
        self._held = whole[len(whole) - keep :]
        return whole[: len(whole) - keep]

    def finish(self) -> str:
        """What was held and is no stop string after all."""
        text, self._held = self._held, ""
        return text

    def _may_begin(self, whole: str) -> int:
        """Length of the longest end of `whole` that a stop string begins with."""
        for size in range(min(self._longest - 1, len(whole)), 0, -1):
            tail = whole[len(whole) - size :]
            if any(stop.startswith(tail) for stop in self._stops):
                return size
        return 0
