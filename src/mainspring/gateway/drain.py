"""How a gateway ends: readiness off, nothing new, what is open finishes in time, the rest is cut. Pure.

ending = Ending(within_s); ending.begin(now_s); ending.over(now_s, open_requests)
"""


class Ending:
    def __init__(self, within_s: float) -> None:
        self.within_s = within_s
        self._by_s: float | None = None

    @property
    def begun(self) -> bool:
        return self._by_s is not None

    def begin(self, now_s: float) -> None:
        """The second time: at once."""
        self._by_s = now_s + self.within_s if self._by_s is None else now_s

    def over(self, now_s: float, open_requests: int) -> bool:
        """Whether the process may end now."""
        return self._by_s is not None and (open_requests == 0 or now_s >= self._by_s)
