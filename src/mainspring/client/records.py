"""What comes back. Frozen; an answer's headers go with it as `Received`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from msgspec import Struct


class Received(Struct, frozen=True):
    """Of the answer's headers: `predicted_ms` is what the router promised, `server_timing` as it came. `attempts`
    counts tries, the last included."""

    request_id: str = ""
    slo_class: str = ""
    predicted_ms: float | None = None
    server_timing: str = ""
    attempts: int = 1


class BehaviorScore(Struct, frozen=True):
    """Three probabilities that sum to 1. `p_not_observable`: the span can't tell, which is not "absent"."""

    id: str
    p_present: float
    p_absent: float
    p_not_observable: float

    @property
    def label(self) -> str:
        """The most probable answer: present, absent or not_observable; the first of equals."""
        table = {"present": self.p_present, "absent": self.p_absent, "not_observable": self.p_not_observable}
        return max(table, key=table.__getitem__)


class Scores(Sequence[BehaviorScore]):
    """Results in request order."""

    def __init__(
        self, model: str, results: tuple[BehaviorScore, ...], input_tokens: int, received: Received | None = None
    ) -> None:
        self.model, self.results, self.input_tokens = model, results, input_tokens
        self.received = received or Received()

    @overload
    def __getitem__(self, index: int) -> BehaviorScore: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[BehaviorScore]: ...
    def __getitem__(self, index: int | slice) -> BehaviorScore | Sequence[BehaviorScore]:
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[BehaviorScore]:
        return iter(self.results)

    def __repr__(self) -> str:
        return f"Scores({self.model!r}, {len(self.results)} results)"


class Answers(Struct, frozen=True):
    """Of `/v1/systemone`: id -> the answer as it came (`{"type": "noul", "noul": ...}` and so on)."""

    model: str
    answers: Mapping[str, Any]
    input_tokens: int
    received: Received = Received()
