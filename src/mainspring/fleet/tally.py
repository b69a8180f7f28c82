"""What happened to requests in the last minute, by class: for status only, nothing is decided by it."""

from collections import deque

from msgspec import Struct

WINDOW_S = 60.0
KEPT = 20_000
RATE_S = 10
"""Of tokens that streams gave, by whole seconds."""
PASSES = 1000
MAX_CODES = 64


class Ending(Struct, frozen=True):
    """`code` is empty for an answer, else the refusal's. Of a generation that began, `total_s` is the time to its first
    token and `gap_s` the mean time of each after that."""

    when_s: float
    slo: str
    total_s: float
    late: bool
    code: str
    tokens: int = 0
    gap_s: float = 0.0


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
        self.submitted = self.answered = self.late = 0
        self.refused: dict[str, int] = {}
        self._seconds: deque[list[int]] = deque(maxlen=RATE_S + 2)

    def count(self, name: str, more: float = 1.0) -> None:
        self.counts[name] = self.counts.get(name, 0.0) + more

    def streamed(self, tokens: int, now_s: float) -> None:
        """So many tokens went out just now."""
        second = int(now_s)
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append([second, 0])
        self._seconds[-1][1] += tokens

    def tokens_s(self, now_s: float) -> float:
        """Tokens a second over the last whole `RATE_S` seconds."""
        last = int(now_s)
        return sum(count for second, count in self._seconds if last - RATE_S <= second < last) / RATE_S

    def ended(self, ending: Ending) -> None:
        self.answered += not ending.code
        self.late += ending.late
        if ending.code:
            code = ending.code if ending.code in self.refused or len(self.refused) < MAX_CODES - 1 else "others"
            self.refused[code] = self.refused.get(code, 0) + 1
        self.endings.append(ending)
        while self.endings and self.endings[0].when_s < ending.when_s - WINDOW_S:
            self.endings.popleft()

    def window_s(self, now_s: float) -> float:
        """How far back `recent` goes: shorter than a minute where more ended than is kept."""
        return min(WINDOW_S, max(0.0, now_s - self.endings[0].when_s)) if len(self.endings) == KEPT else WINDOW_S

    def recent(self, now_s: float) -> dict[str, list[Ending]]:
        by_class: dict[str, list[Ending]] = {}
        for ending in self.endings:
            if ending.when_s >= now_s - WINDOW_S:
                by_class.setdefault(ending.slo, []).append(ending)
        return by_class


def quantile(values: list[float], share: float) -> float:
    """Nearest rank of sorted values; 0 of none."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0
