"""What a sequence leaves behind at a token position: K/V rows, recurrent matrices, the last rows before the conv.

A state is owned by whoever extends it; forks only read. K/V live in buffers with spare room: extending copies nothing
until the room is used up, and then doubles it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mainspring.model.config import FULL, HybridConfig


@dataclass
class DeltaState:
    conv: Tensor  # [K-1, conv_dim], the weights' type
    recurrent: Tensor  # [Hv, dk, dv] fp32

    @property
    def nbytes(self) -> int:
        return self.conv.nbytes + self.recurrent.nbytes

    def copy(self) -> "DeltaState":
        return DeltaState(self.conv.clone(), self.recurrent.clone())


@dataclass
class AttentionState:
    buffer: Tensor  # [2, Hkv, capacity, D]
    length: int = 0

    @property
    def keys(self) -> Tensor:
        return self.buffer[0, :, : self.length]

    @property
    def values(self) -> Tensor:
        return self.buffer[1, :, : self.length]

    @property
    def nbytes(self) -> int:
        return self.buffer.nbytes

    def copy(self, capacity: int) -> "AttentionState":
        """With room for `capacity` tokens, at least those it has."""
        shape = (2, self.buffer.shape[1], max(capacity, self.length), self.buffer.shape[3])
        buffer = self.buffer.new_empty(shape)
        buffer[:, :, : self.length] = self.buffer[:, :, : self.length]
        return AttentionState(buffer, self.length)

    def append(self, k: Tensor, v: Tensor) -> None:
        """k, v [T, Hkv, D]. Views handed out earlier stay as they were: rows are only ever added."""
        end = self.length + len(k)
        if end > self.buffer.shape[2]:
            grown = self.buffer.new_empty(2, self.buffer.shape[1], max(end, 2 * self.length), self.buffer.shape[3])
            grown[:, :, : self.length] = self.buffer[:, :, : self.length]
            self.buffer = grown
        self.buffer[0, :, self.length : end] = k.transpose(0, 1)
        self.buffer[1, :, self.length : end] = v.transpose(0, 1)
        self.length = end


@dataclass
class State:
    layers: list[DeltaState | AttentionState]
    length: int = 0  # tokens seen

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def copy(self, capacity: int = 0) -> "State":
        """A state of its own, with room for `capacity` tokens: moving one leaves the other where it was."""
        layers: list[DeltaState | AttentionState] = [
            layer.copy(capacity) if isinstance(layer, AttentionState) else layer.copy() for layer in self.layers
        ]
        return State(layers, self.length)

    @classmethod
    def empty(cls, config: HybridConfig, capacity: int, *, dtype: torch.dtype, device: torch.device) -> "State":
        c = config
        layers: list[DeltaState | AttentionState] = []
        for kind in c.layer_types:
            if kind == FULL:
                shape = (2, c.num_key_value_heads, capacity, c.head_dim)
                layers.append(AttentionState(torch.empty(shape, dtype=dtype, device=device)))
            else:
                recurrent = (c.linear_num_value_heads, c.linear_key_head_dim, c.linear_value_head_dim)
                layers.append(
                    DeltaState(
                        torch.zeros(c.linear_conv_kernel_dim - 1, c.conv_dim, dtype=dtype, device=device),
                        torch.zeros(recurrent, dtype=torch.float32, device=device),
                    )
                )
        return cls(layers)
