"""A slot and a checkpoint as the host knows them."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from mainspring.backend.cuda.state import CudaState
from mainspring.backend.cuda_slots.buffers import Buffer
from mainspring.backend.generation import TokenRule
from mainspring.ops import rounds
from mainspring.ops.rounds import ANCHOR, DRAFTS, INDEX, KEPT, LEFT, LENGTH, READ, SIDE, TURN, WAITING

ROOM = 512
"""Rows that a buffer grows by beyond what is asked for."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """`pending` [1, d]: the trunk's last row, for the drafting head; `logits` [V] where the prompt ended here."""

    buffer: Buffer
    length: int
    recurrent: Tensor  # [delta layers, Hv, dk, dv] fp32
    conv: Tensor  # [delta layers, K - 1, Ch]
    read: int
    pending: Tensor | None
    logits: Tensor | None

    @property
    def own_bytes(self) -> int:
        return sum(x.nbytes for x in (self.recurrent, self.conv, self.pending, self.logits) if x is not None)


@dataclass(eq=False)
class Slot:
    """`words` are the device's as of the last round delivered; `ceiling` bounds LENGTH over all rounds under way."""

    number: int
    drafting: bool
    state: CudaState  # over the prompt; its recurrent part is the slot's own
    buffer: Buffer
    rule: TokenRule = field(default_factory=TokenRule)
    read: int = 0  # rows of the drafting head's K/V, over the prompt
    pending: Tensor | None = None
    logits: Tensor | None = None
    begun: bool = False
    words: list[int] = field(default_factory=lambda: [0] * rounds.WORDS)
    ceiling: int = 0
    waiting: int = 1  # bounds WAITING over all rounds under way

    @property
    def length(self) -> int:
        return self.words[LENGTH] if self.begun else self.state.length

    def begin(self) -> list[int]:
        words = [0] * rounds.WORDS
        words[LENGTH], words[READ], words[WAITING] = self.state.length, self.read, int(self.drafting)
        words[DRAFTS] = int(self.drafting)
        self.words, self.ceiling, self.waiting, self.begun = words, self.state.length, 1, True
        return words

    def moved(self, tokens: list[int], *, stopped: bool, forwarded: bool) -> None:
        """As `walk` moves the device's words; no tokens: a fault, or a round thrown away."""
        w, n = self.words, len(tokens)
        if w[LEFT] <= 0:  # its lane did nothing
            return
        if forwarded:
            w[SIDE], w[KEPT] = 1 - w[SIDE], n
        if not n:
            return
        if forwarded:
            w[LENGTH], w[READ] = w[LENGTH] + n, w[READ] + w[WAITING]
            w[WAITING], w[TURN] = n * w[DRAFTS], 1 - w[TURN]
        w[ANCHOR], w[INDEX], w[LEFT] = tokens[-1], w[INDEX] + n, 0 if stopped else w[LEFT] - n

    def checkpoint(self, *, pending: Tensor | None, logits: Tensor | None) -> Checkpoint:
        """At the slot's length."""
        self.buffer.claims.append(self.state.length)
        conv = self.state.conv[:, self.state.parity].clone()
        return Checkpoint(
            self.buffer, self.state.length, self.state.recurrent.clone(), conv, self.read, pending, logits
        )

    def restore(self, kept: Checkpoint, capacity: int) -> None:
        if kept.buffer.take_over(kept.length):
            self.buffer = kept.buffer
        else:
            self.buffer = kept.buffer.with_room(kept.length, max(kept.length, capacity))
        state = self.state
        state.kv = self.buffer.rows
        state.recurrent.copy_(kept.recurrent)
        state.conv[:, 0].copy_(kept.conv)
        state.length, state.parity = kept.length, 0
        self.read, self.pending, self.logits = kept.read, kept.pending, kept.logits

    def room(self, tokens: int, written: int) -> bool:
        """Whether the buffer had to be another one to hold `tokens`; its first `written` rows come along."""
        if tokens <= self.buffer.capacity:
            return False
        old = self.buffer
        self.buffer = old.with_room(written, max(tokens + ROOM, tokens * 5 // 4))
        self.state.kv = self.buffer.rows
        old.written = False
        return True


def host_words(words: list[int]) -> Tensor:
    return torch.tensor(words, dtype=torch.int64)
