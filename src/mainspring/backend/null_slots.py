"""Slots without maths: tokens that hash what was read, at modelled times. For tests and figures of everything above.

A token is a hash of the prompt and of all tokens before it (with chance, of the seed too), so a mixed-up slot, a lost
piece or a wrong checkpoint shows in the text, and text depends on neither pieces, drafts nor company. Host drafts are
compared; the device's own are right with a chance of `acceptance` each, by hash.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from mainspring.backend.generation import (
    NO_TOKEN,
    CheckpointSize,
    RoundResult,
    SlotLimits,
    SlotResult,
    SlotRound,
    TokenRule,
    TopTokens,
)
from mainspring.backend.handles import Handles
from mainspring.backend.protocol import IntArray

DRAFTER = "mtp"
_OWN_BYTES, _TOKEN_BYTES = 1 << 16, 1 << 10
_LOGPROB = -1.0


@dataclass
class _Slot:
    """`read` has hashed the prompt and what was emitted."""

    read: Any = field(default_factory=lambda: blake2b(digest_size=16))
    position: int = 0
    rule: TokenRule = field(default_factory=TokenRule)
    emitted: int = 0
    rounds: int = 0

    def copy(self) -> "_Slot":
        return _Slot(self.read.copy(), self.position)


@dataclass
class NullTimes:
    """Seconds: a piece of a prompt and each of its tokens; a round, each slot in it, each token of its context."""

    piece: float = 0.0
    token: float = 0.0
    round: float = 0.0
    slot: float = 0.0
    context: float = 0.0


class NullSlots:
    """`acceptance` None: no drafter of its own."""

    def __init__(
        self, limits: SlotLimits, *, context_tokens: int, vocab_size: int, times: NullTimes,
        sleep: Callable[[float], None], acceptance: float | None = None,
    ) -> None:  # fmt: skip
        self.limits = limits
        self.context_tokens, self.vocab_size = context_tokens, vocab_size
        self.drafter = "" if acceptance is None else DRAFTER
        self._acceptance = acceptance or 0.0
        self._times, self._sleep = times, sleep
        self._slots: dict[int, _Slot] = {}
        self._checkpoints: Handles[_Slot] = Handles()

    def open_slot(self, *, drafting: bool, capacity: int = 0) -> int:  # noqa: ARG002 - nothing to keep up or make room for
        free = next((slot for slot in range(self.limits.slots) if slot not in self._slots), None)
        if free is None:
            raise ValueError("no slot is free")
        self._slots[free] = _Slot()
        return free

    def close_slot(self, slot: int) -> None:
        del self._slots[slot]

    def begin(self, slot: int, rule: TokenRule, prompt: IntArray) -> None:  # noqa: ARG002 - no penalties here
        self._slots[slot].rule = rule

    def prefill_slot(
        self, slot: int, tokens: IntArray, *, saves: tuple[int, ...] = (), final: bool = True  # noqa: ARG002
    ) -> tuple[int, ...]:  # fmt: skip
        state = self._slots[slot]
        handles: list[int] = []
        at = 0
        for end in (*saves, state.position + len(tokens)):
            piece = tokens[at : at + end - state.position]
            at += len(piece)
            state.read.update(np.asarray(piece, "<i8").tobytes())
            state.position = end
            if len(handles) < len(saves):
                handles.append(self._checkpoints.add(state.copy()))
        self._spend(self._times.piece + self._times.token * len(tokens))
        return tuple(handles)

    def position(self, slot: int) -> int:
        return self._slots[slot].position

    def save(self, slot: int) -> int:
        if self._slots[slot].rounds:
            raise ValueError("a round has run")
        return self._checkpoints.add(self._slots[slot].copy())

    def restore(self, slot: int, checkpoint: int) -> None:
        self._slots[slot] = self._checkpoints[checkpoint].copy()

    def checkpoint_size(self, checkpoint: int) -> CheckpointSize:
        return CheckpointSize(_OWN_BYTES, checkpoint, _TOKEN_BYTES * self._checkpoints[checkpoint].position)

    def release(self, checkpoint: int) -> None:
        self._checkpoints.remove(checkpoint)

    def round(self, parts: tuple[SlotRound, ...]) -> RoundResult:
        forwarded = [part for part in parts if part.anchor != NO_TOKEN]
        context = sum(self._slots[part.slot].position for part in forwarded)
        results = tuple(self._one(part) for part in parts)
        times = self._times
        seconds = times.round + times.slot * len(forwarded) + times.context * context if forwarded else 0.0
        self._spend(seconds)
        return RoundResult(results, seconds, sum(1 + len(part.drafts) + part.draft for part in forwarded))

    # ---------------------------------------------------------------- within

    def _one(self, part: SlotRound) -> SlotResult:
        slot = self._slots[part.slot]
        emitted: list[int] = []
        stopped = False
        drafted = len(part.drafts) + part.draft
        for row in range(drafted + 1):
            token, lucky = self._next(slot, None if part.masks is None else part.masks[row])
            emitted.append(token)
            slot.read.update(np.asarray([token], "<i8").tobytes())
            slot.emitted += 1
            stopped = token in slot.rule.stop_ids
            right = token == part.drafts[row] if row < len(part.drafts) else lucky
            if stopped or len(emitted) == part.most or not right:
                break
        slot.rounds += 1
        slot.position += len(emitted) - (part.anchor == NO_TOKEN)
        tops = tuple(_top(token, slot.rule.logprobs, self.vocab_size) for token in emitted)
        accepted = min(len(emitted) - 1, drafted)
        return SlotResult(tuple(emitted), drafted, accepted, stopped, tops if slot.rule.logprobs >= 0 else ())

    def _next(self, slot: _Slot, mask: Any) -> tuple[int, bool]:
        """The token after what was read, and whether the device's own draft would have been it."""
        read = slot.read.copy()
        if slot.rule.choice.temperature > 0.0:
            read.update(slot.rule.choice.seed.to_bytes(8, "little"))
        digest = read.digest()
        token = int.from_bytes(digest[:8], "little") % self.vocab_size
        banned = slot.rule.stop_ids if slot.emitted < slot.rule.min_tokens else frozenset[int]()
        if mask is not None or token in banned:
            allowed = np.ones(self.vocab_size, bool) if mask is None else _bits(mask, self.vocab_size)
            allowed[[each for each in banned if each < self.vocab_size]] = False
            ids = np.flatnonzero(allowed)
            if not len(ids):
                raise ValueError("no token is allowed")
            token = int(ids[np.searchsorted(ids, token) % len(ids)])
        return token, int.from_bytes(digest[8:16], "little") < self._acceptance * 2.0**64

    def _spend(self, seconds: float) -> None:
        if seconds > 0.0:
            self._sleep(seconds)


def _bits(mask: Any, vocab_size: int) -> np.ndarray:
    return np.unpackbits(np.asarray(mask, "<u4").view(np.uint8), bitorder="little")[:vocab_size].astype(bool)


def _top(token: int, count: int, vocab_size: int) -> TopTokens:
    others = [(token, _LOGPROB)] + [((token + i) % vocab_size, _LOGPROB - i) for i in range(1, max(0, count))]
    return TopTokens(_LOGPROB, tuple(others[: max(0, count)]))
