"""When a node that drains may say goodbye. Pure."""


class Departure:
    def __init__(self) -> None:
        self._from_s = float("inf")
        self._by_s = float("inf")

    @property
    def begun(self) -> bool:
        return self._from_s < float("inf")

    def begin(self, now_s: float, within_s: float, linger_s: float) -> None:
        """Stay `linger_s` at least: what the router sent before it heard of it is still under way."""
        if not self.begun:
            self._from_s = now_s + min(linger_s, within_s)
        self._by_s = min(self._by_s, now_s + within_s)

    def may_go(self, busy: bool, now_s: float) -> bool:
        """When nothing is held any more, or time is up."""
        return self.begun and ((now_s >= self._from_s and not busy) or now_s >= self._by_s)

    def due_s(self, now_s: float) -> float:
        """When to ask again if nothing happens: the end of a job is told by whoever runs it."""
        return self._from_s if now_s < self._from_s else self._by_s
