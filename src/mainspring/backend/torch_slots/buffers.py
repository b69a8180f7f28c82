"""K/V rows of one sequence, which a slot writes on and checkpoints of its prompt go on using.

Rows are only ever written at or past every checkpoint's length, so what a checkpoint holds stays as it was while the
slot goes on. A slot that restores a checkpoint becomes the buffer's writer where nobody writes it and no checkpoint
reaches further; else it copies the rows. Rows nobody wrote, or that were rejected, are read under a mask: finite they
must be, so a writer that failed wipes its own.
"""

from dataclasses import dataclass, field
from itertools import count

import torch
from torch import Tensor

from mainspring.ops.attention.tiled import KEY_BLOCK

_numbers = count()


@dataclass
class Buffer:
    """rows [layers, 2, G, capacity, D], capacity a multiple of KEY_BLOCK."""

    rows: Tensor
    claims: list[int] = field(default_factory=list)  # lengths of the checkpoints on it
    written: bool = False  # by a slot
    number: int = field(default_factory=lambda: next(_numbers))

    @classmethod
    def empty(cls, shape: tuple[int, int, int], tokens: int) -> "Buffer":
        """For (layers, G, D) and at least `tokens` rows."""
        layers, G, D = shape
        capacity = max(-(-tokens // KEY_BLOCK), 1) * KEY_BLOCK
        return cls(torch.zeros(layers, 2, G, capacity, D))

    @property
    def capacity(self) -> int:
        return self.rows.shape[3]

    def keys(self, layer: int) -> Tensor:
        return self.rows[layer, 0]

    def values(self, layer: int) -> Tensor:
        return self.rows[layer, 1]

    def put(self, layer: int, at: int, k: Tensor, v: Tensor) -> None:
        """k, v [T, G, D] at rows `at`, ..."""
        end = at + len(k)
        self.rows[layer, 0, :, at:end] = k.transpose(0, 1)
        self.rows[layer, 1, :, at:end] = v.transpose(0, 1)

    def with_room(self, length: int, tokens: int) -> "Buffer":
        """A new buffer for `tokens` with the first `length` rows."""
        layers, _, G, _, D = self.rows.shape
        grown = Buffer.empty((layers, G, D), tokens)
        grown.rows[:, :, :, :length] = self.rows[:, :, :, :length]
        return grown

    def take_over(self, length: int) -> bool:
        """Become the writer past `length`, if that disturbs nobody."""
        if self.written or max(self.claims, default=0) > length:
            return False
        self.written = True
        return True

    def leave(self, *, wipe: bool) -> None:
        """The writer is done; `wipe` where its rows may not be finite."""
        self.written = False
        if wipe and self.claims:
            self.rows[:, :, :, max(self.claims) :] = 0.0
