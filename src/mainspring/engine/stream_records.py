"""What goes into a stream of tokens and what comes out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mainspring.engine.sampling import Sampling
from mainspring.engine.work import Tokens
from mainspring.errors import MainspringError

Finish = Literal["stop", "length", "cancelled", "failed"]
MOST_TOP = 20
"""Likeliest tokens reported beside the chosen one."""

Top = tuple[tuple[int, float], ...]
"""(id, log-probability), likeliest first, of equals the lower id."""


class SlotsFullError(MainspringError):
    """Every slot has a stream; nothing changed. Try again when one has ended."""

    code = "slots_full"


class StreamFailedError(MainspringError):
    """The device failed at this stream's prompt; the stream is over, others go on."""

    code = "stream_failed"


class Constraint(Protocol):
    """A grammar that the reply follows. Its host work comes before each of the stream's rounds."""

    def masks(self, drafts: Sequence[int]) -> NDArray[np.uint32]:
        """[1 + n, ceil(vocab / 32)]: row i says which tokens may follow drafts[:i] (bit i of word w: id 32 w + i).
        Drafts after the first n are not used: the grammar forbids one, or does not know."""
        ...

    def advance(self, tokens: Sequence[int]) -> None:
        """These were emitted; a stop token is left out."""
        ...


@dataclass(frozen=True, kw_only=True)
class StreamSpec:
    """One reply. `tokens` is the prompt, or its first part where `prompt_tokens` says how many there will be (`feed`).

    `drafter` "" lets the engine choose; `draft_tokens` fixes how many are drafted a round. `marks`: (position, outside
    key) where a checkpoint pays, as turn ends; it is taken at the grid position at or before. `salt` keeps checkpoints
    apart that must not be shared. `resume`: the outside key of a checkpoint that `tokens` follow.
    """

    id: str
    tokens: Tokens
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    drafter: str = ""
    draft_tokens: int | None = None
    logprobs: int = -1
    marks: tuple[tuple[int, bytes], ...] = ()
    salt: bytes = b""
    constraint: Constraint | None = None
    prompt_tokens: int | None = None
    resume: bytes | None = None


@dataclass(frozen=True)
class Ended:
    """How a reply ended. `tokens` in all; `rounds` that forwarded something or gave the first token; `histogram[n]`:
    rounds that emitted n tokens. Acceptance length is tokens / rounds: accepted drafts and the one token beside."""

    finish: Finish
    tokens: int
    prompt_tokens: int
    cached_tokens: int
    rounds: int
    drafted: int
    accepted: int
    histogram: tuple[int, ...]
    stop_id: int | None = None
    message: str = ""


@dataclass(frozen=True)
class Emitted:
    """What one round gave one stream. `logprobs` a token and `top` a token where asked, else empty. A stop id is the
    last of `tokens`. `ended` comes once, with the last."""

    id: str
    tokens: tuple[int, ...]
    rounds: int = 1
    drafted: int = 0
    accepted: int = 0
    logprobs: tuple[float, ...] = ()
    top: tuple[Top, ...] = ()
    ended: Ended | None = None
