"""What one stream owns on the device, and what a checkpoint of its prompt keeps."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from mainspring.backend.generation import TokenRule
from mainspring.backend.torch_slots.buffers import Buffer
from mainspring.model.config import FULL, HybridConfig
from mainspring.ops.acceptance.reference import Seen
from mainspring.ops.gated_delta.step import Written, replay

ROOM = 512
"""Rows that a buffer grows by beyond what is asked for."""


@dataclass(frozen=True)
class Checkpoint:
    """`pending` [1, d]: the trunk's last row, for the drafting head; `logits` [vocab] where the prompt ended here."""

    buffer: Buffer
    length: int
    recurrent: Tensor  # [delta layers, Hv, dk, dv]
    conv: Tensor  # [delta layers, K - 1, Ch]
    drafted: int
    pending: Tensor | None
    logits: Tensor | None

    @property
    def own_bytes(self) -> int:
        return sum(x.nbytes for x in (self.recurrent, self.conv, self.pending, self.logits) if x is not None)


@dataclass
class Round:
    """Of the round that runs: what each delta layer wrote and read, so that fewer rows can be kept."""

    written: list[Written] = field(default_factory=list)
    extended: list[Tensor] = field(default_factory=list)  # conv inputs, the K - 1 rows before included

    def clear(self) -> None:
        self.written, self.extended = [], []


class Slot:
    def __init__(self, config: HybridConfig, layers: int, *, drafting: bool, capacity: int = 0) -> None:
        c = config
        deltas = sum(kind != FULL for kind in c.layer_types)
        heads = (c.linear_num_value_heads, c.linear_key_head_dim, c.linear_value_head_dim)
        self.shape = (layers, c.num_key_value_heads, c.head_dim)
        self.states = torch.zeros(deltas, 2, *heads)  # two parities a layer
        self.side = 0
        self.conv = torch.zeros(deltas, c.linear_conv_kernel_dim - 1, c.conv_dim)
        self.capacity = capacity  # of the first buffer
        self.buffer: Buffer | None = None
        self.length = 0
        self.logits: Tensor | None = None
        self.rule, self.seen = TokenRule(), Seen()
        self.emitted = 0
        self.drafting = drafting
        self.drafted = 0  # rows of the drafting head's K/V
        self.pending: Tensor | None = None  # trunk rows [m, d] that it has not read
        self.following: list[int] = []  # the tokens after those rows, as far as they are known
        self.round = Round()

    def front(self, layer: int) -> Tensor:
        return self.states[layer, self.side]

    def back(self, layer: int) -> Tensor:
        return self.states[layer, 1 - self.side]

    def room(self, tokens: int) -> Buffer:
        """The buffer, with rows for `tokens`."""
        if self.buffer is None:
            self.buffer = Buffer.empty(self.shape, max(tokens, self.capacity))
            self.buffer.written = True
        elif tokens > self.buffer.capacity:
            old, self.buffer = self.buffer, self.buffer.with_room(self.length, max(tokens + ROOM, tokens * 5 // 4))
            self.buffer.written = True
            old.leave(wipe=False)
        return self.buffer

    def commit(self, rows: int, kept: int) -> None:
        """Keep the first `kept` of the round's `rows`: flip, or replay from the front and flip."""
        memory = self.conv.shape[1]
        for layer, (written, extended) in enumerate(zip(self.round.written, self.round.extended, strict=True)):
            if kept < rows:
                replay(self.front(layer), self.back(layer), written, kept)
            self.conv[layer] = extended[kept : kept + memory]
        self.side = 1 - self.side
        self.length += kept

    def checkpoint(self, *, length: int, recurrent: Tensor, conv: Tensor, pending: Tensor | None,
                   logits: Tensor | None) -> Checkpoint:  # fmt: skip
        """Of this slot's buffer at `length`, taking the arrays as they are."""
        buffer = self.room(length)
        buffer.claims.append(length)
        drafted = max(length - 1, 0) if self.drafting else 0
        return Checkpoint(buffer, length, recurrent, conv, drafted, pending, logits)

    def restore(self, kept: Checkpoint) -> None:
        if kept.buffer.take_over(kept.length):
            self.buffer = kept.buffer
        else:
            self.buffer = kept.buffer.with_room(kept.length, max(kept.length, self.capacity))
            self.buffer.written = True
        self.states[:, self.side] = kept.recurrent
        self.conv.copy_(kept.conv)
        self.length, self.drafted = kept.length, kept.drafted
        self.pending, self.following, self.logits = kept.pending, [], kept.logits

    def close(self, *, wipe: bool) -> None:
        if self.buffer is not None:
            self.buffer.leave(wipe=wipe)
        self.buffer = None
