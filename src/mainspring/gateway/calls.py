"""What crosses between routes and `Gateway`: plain records, no HTTP."""

from collections.abc import AsyncIterator, Callable
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from mainspring.text.question import Question
from mainspring.text.span import Json, Note, Span
from mainspring.text.view import View
from mainspring.wire import messages as m

Overflow = Literal["refuse", "cut"]
Floats = npt.NDArray[np.float64]


class Terms(Struct, frozen=True, kw_only=True):
    """On whose behalf and how urgently. `tenant` names the key ("" without keys); `due_s` is on the gateway's clock,
    None: no deadline of the caller's. `ready()` is called once there are tokens, `accepted(predicted_s)` once the
    router took the request."""

    request_id: str
    slo: str
    tenant: str = ""
    due_s: float | None = None
    trace: str = ""
    ready: Callable[[], None] | None = None
    accepted: Callable[[float], None] | None = None


class ScoreCall(Struct, frozen=True, kw_only=True):
    """`model` is an alias or a model key, "" the default. `span` is decoded JSON of any known format, or a `Span`.
    `is_state`: JSON that is no conversation is read as text instead of being refused.
    `fields` are the names of the caller's fields for errors: of the span, and of the questions. `size`: bytes it came
    in and those of its values, as many small turns take longer than a long one; 0 where nobody counted. Small calls are
    rendered on the loop. `named`: errors name a question by its id instead
    of its number. `want_familiarity`: of behaviors, one branch each."""

    model: str
    span: Json | Span
    questions: tuple[Question, ...]
    terms: Terms
    on_overflow: Overflow = "refuse"
    choice: int = 0
    want_view: bool = False
    want_familiarity: bool = False
    is_state: bool = False
    fields: tuple[str, str] = ("span", "behaviors")
    size: int = 0
    named: bool = False

    def place(self, index: int) -> str:
        """Of one question, as the caller knows it."""
        field = self.fields[1]
        return f"{field}.{self.questions[index].id[:64]}" if self.named else f"{field}[{index}]"


class Asking(Struct, frozen=True, kw_only=True):
    """Below text: `view` and every branch are token ids, `labels` the ids read at each branch's end. `tokens`: what it
    counts for in quotas and metrics where that is less than all that is read, as for a branch that is asked in
    several."""

    model: str
    view: npt.NDArray[np.uint32]
    branches: tuple[npt.NDArray[np.uint32], ...]
    labels: tuple[npt.NDArray[np.uint32], ...]
    terms: Terms
    tokens: int | None = None


class Stages(Struct, kw_only=True):
    """Seconds. `wait_s` for a pool thread, `text_s` reading, rendering and tokenising there, `fleet_s` from submit to
    result; of that `queue_s` in the router and `device_s` on nodes. `predicted_s` is what the router promised."""

    wait_s: float = 0.0
    text_s: float = 0.0
    fleet_s: float = 0.0
    queue_s: float = 0.0
    device_s: float = 0.0
    predicted_s: float = 0.0
    cached_tokens: int = 0
    nodes: tuple[str, ...] = ()
    late: bool = False


class Answered(Struct, frozen=True, kw_only=True):
    """`logits`: one row a branch, as many values as it has labels."""

    model: str
    logits: tuple[npt.NDArray[np.float32], ...]
    input_tokens: int
    stages: Stages


class Scored(Struct, frozen=True, kw_only=True):
    """`rows`: one a question, probabilities in the order of its labels. `input_tokens`: the view once and all branches.
    `view` and `familiarity`, one a question, only where they were wanted, the latter if the model's bundle can tell."""

    model: str
    rows: tuple[Floats, ...]
    input_tokens: int
    view_tokens: int
    notes: tuple[Note, ...]
    stages: Stages
    format: str = ""
    view: View | None = None
    familiarity: tuple[float, ...] | None = None


class Fleet(Protocol):
    """What is needed of `FleetClient`."""

    @property
    def connected(self) -> bool: ...

    async def score(self, submit: m.Submit, accepted: Callable[[float], None] | None = None) -> m.Result: ...

    def generate(
        self, submit: m.Submit, accepted: Callable[[float], None] | None = None, *, within_s: float = ...
    ) -> AsyncIterator[m.Rounds | m.LeaseEnded]: ...

    async def status(self, passes: int = 0) -> m.Status: ...

    async def bundle(self, name: str) -> bytes: ...
