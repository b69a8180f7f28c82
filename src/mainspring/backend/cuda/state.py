"""What a view leaves behind on the device: three arrays over all layers of a kind, so that a kernel finds any layer's
part by one address and the layer's number.

K/V rows lie as the kernels write them: [layers, capacity, 2, G, D]. The convolution's last rows are kept twice and
alternate: a pass reads one copy while it writes the other. A state is owned by whoever extends it; forks only read.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mainspring.model.config import FULL, HybridConfig


@dataclass
class CudaState:
    kv: Tensor  # [attention layers, capacity, 2, G, D], the weights' type
    recurrent: Tensor  # [delta layers, Hv, dk, dv] fp32
    conv: Tensor  # [delta layers, 2, K - 1, Ch], the weights' type
    length: int = 0
    parity: int = 0

    @classmethod
    def empty(cls, config: HybridConfig, capacity: int, *, dtype: torch.dtype, device: torch.device) -> "CudaState":
        c = config
        full = c.layer_types.count(FULL)
        delta = c.num_layers - full
        heads = (c.linear_num_value_heads, c.linear_key_head_dim, c.linear_value_head_dim)
        return cls(
            torch.empty(full, capacity, 2, c.num_key_value_heads, c.head_dim, dtype=dtype, device=device),
            torch.empty(delta, *heads, dtype=torch.float32, device=device),
            torch.empty(delta, 2, c.linear_conv_kernel_dim - 1, c.conv_dim, dtype=dtype, device=device),
        )

    @property
    def nbytes(self) -> int:
        return self.kv.nbytes + self.recurrent.nbytes + self.conv.nbytes

    def reserve(self, rows: int) -> None:
        """Room for `rows` K/V rows; at least doubles where it has to grow."""
        capacity = self.kv.shape[1]
        if rows > capacity:
            grown = self.kv.new_empty(self.kv.shape[0], max(rows, 2 * self.length), *self.kv.shape[2:])
            grown[:, : self.length] = self.kv[:, : self.length]
            self.kv = grown

    def copy(self, capacity: int = 0) -> "CudaState":
        """A state of its own, with room for `capacity` tokens, at least those it has."""
        kv = self.kv.new_empty(self.kv.shape[0], max(capacity, self.length), *self.kv.shape[2:])
        kv[:, : self.length] = self.kv[:, : self.length]
        return CudaState(kv, self.recurrent.clone(), self.conv.clone(), self.length, self.parity)

    def advanced(self, rows: int) -> None:
        """A pass over `rows` more tokens has been queued."""
        self.length += rows
        self.parity = 1 - self.parity

    def conv_address(self, parity: int) -> int:
        """Of the first delta layer's copy `parity`; the next layer's is `conv.stride(0)` values further on."""
        return self.conv.data_ptr() + parity * self.conv.stride(1) * self.conv.element_size()
