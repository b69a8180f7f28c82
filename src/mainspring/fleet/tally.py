"""What happened to requests in the last minute, by class: for status only, nothing is decided by it."""

from collections import deque

from msgspec import Struct

WINDOW_S = 60.0
KEPT = 20_000
PASSES = 1000


class Ending(Struct, frozen=True):
    """`code` is empty for an answer, else the refusal's."""

    when_s: float
    slo: str
    total_s: float
    late: bool
    code: str


class PassRecord(Struct, frozen=True):
    node: str
    pass_id: int
    when_s: float
    predicted_s: float
    measured_s: float
    parts: int
    tokens: int


class Tally:
    """Bounded by time and by count: under a flood the window is shorter, not the memory larger."""

    def __init__(self) -> None:
        self.endings: deque[Ending] = deque(maxlen=KEPT)
        self.passes: deque[PassRecord] = deque(maxlen=PASSES)
        self.counts: dict[str, float] = {}

    def count(self, name: str, more: float = 1.0) -> None:
        self.counts[name] = self.counts.get(name, 0.0) + more

    def ended(self, ending: Ending) -> None:
        self.endings.append(ending)
        while self.endings and self.endings[0].when_s < ending.when_s - WINDOW_S:
            self.endings.popleft()

    def recent(self, now_s: float) -> dict[str, list[Ending]]:
        by_class: dict[str, list[Ending]] = {}
        for ending in self.endings:
            if ending.when_s >= now_s - WINDOW_S:
                by_class.setdefault(ending.slo, []).append(ending)
        return by_class


def quantile(values: list[float], share: float) -> float:
    """Nearest rank of sorted values; 0 of none."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0
