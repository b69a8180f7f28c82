"""What the engine asks of a device that generates. What crosses is numpy, ints and small records.

A *slot* is one stream's place: K/V rows, recurrent and conv states, the drafting head's, the last logits. A
*checkpoint* is what a slot was at a position of its prompt; it shares its K/V rows with slots and other checkpoints
where it can.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mainspring.backend.protocol import IntArray
from mainspring.ops.acceptance import Rule

NO_TOKEN = -1
GRID = 64
"""Prompts are scanned in pieces that begin at multiples of this."""


@dataclass(frozen=True)
class SlotLimits:
    """`block_rows` is the most rows of a slot in one round: the last token and its drafts. `deterministic`: every round
    has all rows of all slots, so that text depends on neither drafts nor company, at the price of the padding.
    `vocab_size`: tokens that can be read and chosen, the tokenizer's; None: all that the weights have."""

    slots: int = 4
    block_rows: int = 8
    deterministic: bool = False
    vocab_size: int | None = None

    def __post_init__(self) -> None:
        for name, most in (("slots", 1024), ("block_rows", 64)):
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name} is from 1 to {most}, not {getattr(self, name)}")


@dataclass(frozen=True)
class TokenRule:
    """What a slot keeps for its whole stream. `logprobs` -1: none; n: of the chosen token and the n likeliest."""

    choice: Rule = field(default_factory=Rule)
    stop_ids: frozenset[int] = frozenset()
    min_tokens: int = 0
    logprobs: int = -1


@dataclass(frozen=True)
class SlotRound:
    """One slot's part of a round. `anchor`: its last token, not forwarded yet; NO_TOKEN: the first token comes from the
    logits that prefill or a checkpoint left, and nothing is forwarded. At most `most` tokens are emitted.

    `drafts` came from the host; `draft` asks the device's own drafter for that many instead. masks uint32
    [1 + len(drafts), ceil(vocab / 32)]: tokens allowed at each row.
    """

    slot: int
    anchor: int
    most: int
    drafts: tuple[int, ...] = ()
    draft: int = 0
    masks: NDArray[np.uint32] | None = None


class TopTokens(NamedTuple):
    logprob: float
    others: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class SlotResult:
    """`tokens` emitted, the last one the slot's next anchor. `fault` says why there are none; the slot is as it was."""

    tokens: tuple[int, ...] = ()
    drafted: int = 0
    accepted: int = 0
    stopped: bool = False
    logprobs: tuple[TopTokens, ...] = ()
    fault: str | None = None


@dataclass(frozen=True)
class RoundResult:
    slots: tuple[SlotResult, ...]
    seconds: float  # device time of the round, after its one sync
    rows: int  # that were forwarded, padding included


class CheckpointSize(NamedTuple):
    """`own` bytes, and those of a buffer that others may use too."""

    own: int
    buffer: int
    buffer_bytes: int


class GenerationBackend(Protocol):
    """One model's slots on one device. Not thread-safe."""

    limits: SlotLimits

    @property
    def context_tokens(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def drafter(self) -> str:
        """Name of the device's own drafter, "" where it has none."""
        ...

    def open_slot(self, *, drafting: bool, capacity: int = 0) -> int:
        """A free slot at position 0. `drafting`: the device's drafter is to be kept up. `capacity`: tokens that it is
        to have room for at once; more is made when needed. ValueError where none is free."""
        ...

    def close_slot(self, slot: int) -> None: ...

    def begin(self, slot: int, rule: TokenRule, prompt: IntArray) -> None:
        """Say how tokens are chosen, before the first round; `prompt` is for penalties."""
        ...

    def prefill_slot(
        self, slot: int, tokens: IntArray, *, saves: tuple[int, ...] = (), final: bool = True
    ) -> tuple[int, ...]:
        """Move the slot, which is at a multiple of GRID, over `tokens`; checkpoints at `saves` (rising positions on the
        grid within the piece, its end included), taken on the way. `final`: the prompt ends here, keep its logits."""
        ...

    def position(self, slot: int) -> int:
        """Tokens forwarded and kept."""
        ...

    def save(self, slot: int) -> int:
        """A checkpoint of the slot at its prompt's end, with the last logits. ValueError once a round has run."""
        ...

    def restore(self, slot: int, checkpoint: int) -> None:
        """Put a slot that was just opened to where the checkpoint was taken."""
        ...

    def checkpoint_size(self, checkpoint: int) -> CheckpointSize: ...

    def release(self, checkpoint: int) -> None: ...

    def round(self, parts: tuple[SlotRound, ...]) -> RoundResult:
        """Draft, verify, accept, commit: one readback. Where it raises, every slot is as it was."""
        ...
