"""K/V rows of one sequence, which a slot writes on and checkpoints of its prompt go on using.

Rows are only ever written at or past every checkpoint's length. A slot that restores a checkpoint becomes the writer
where nobody is and no checkpoint reaches further; else it copies the rows. Kernels read no row that was not written by
whom they run for, so what others left past it, finite or not, is never seen.
"""

from dataclasses import dataclass, field
from itertools import count

import torch
from torch import Tensor

STEP = 256
"""Rows that a buffer's capacity is a multiple of."""
_numbers = count()


@dataclass(eq=False)
class Buffer:
    """rows [layers, capacity, 2, G, D], as the kernels write them."""

    rows: Tensor
    claims: list[int] = field(default_factory=list)  # lengths of the checkpoints on it
    written: bool = False  # by a slot
    number: int = field(default_factory=lambda: next(_numbers))

    @classmethod
    def empty(cls, layers: int, tokens: int, heads: tuple[int, int], like: Tensor) -> "Buffer":
        """For at least `tokens` rows of (G, D), in `like`'s type and place."""
        capacity = max(-(-tokens // STEP), 1) * STEP
        return cls(like.new_empty(layers, capacity, 2, *heads))

    @property
    def capacity(self) -> int:
        return self.rows.shape[1]

    def with_room(self, length: int, tokens: int) -> "Buffer":
        """A new buffer for `tokens` with the first `length` rows; its caller writes it."""
        layers, heads, size = self.rows.shape[0], *self.rows.shape[3:]
        grown = Buffer.empty(layers, max(tokens, length), (heads, size), self.rows)
        grown.rows[:, :length].copy_(self.rows[:, :length])
        grown.written = True
        return grown

    def take_over(self, length: int) -> bool:
        """Become the writer past `length`, if that disturbs nobody."""
        if self.written or max(self.claims, default=0) > length:
            return False
        self.written = True
        return True

    @property
    def address(self) -> tuple[int, int]:
        """Of the first row, and the bytes from one layer to the next."""
        return self.rows.data_ptr(), self.rows.stride(0) * self.rows.element_size()


def store_row(buffer: Buffer | None) -> Tensor:
    """[2] int64 on the host; zeros: nowhere."""
    return torch.tensor((0, 0) if buffer is None else buffer.address, dtype=torch.int64)
