"""Lays a network's matrices out for oneDNN, from outside: the network's own code stays plain.

Products of several parts give each large part a matrix of its own, so that what follows reads contiguous rows, and the
MLP's activation runs inside the products (silu with the gate, the multiplication with the up half): two passes over
[T, F] less a layer. The weights of a block's norms go into the matrices that read them: a pass over [T, d] less each.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mainspring.model.hybrid import MLP, GatedAttention, Hybrid, RMSNorm
from mainspring.ops.linear import onednn

_SMALL_ROWS = 128  # parts below this share one matrix


class PackedLinear(nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.packed = onednn.pack(weight)

    def forward(self, x: Tensor) -> Tensor:
        return onednn.linear(x, self.packed)


class PackedProjections(nn.Module):
    """Same parts in the same order as `Projections`; neighbouring small parts come from one product."""

    def __init__(self, weight: Tensor, sizes: Sequence[int]) -> None:
        super().__init__()
        self.groups: list[tuple[Tensor, list[int]]] = []
        pending: list[Tensor] = []
        for part in weight.split(list(sizes)):
            if len(part) >= _SMALL_ROWS:
                self._close(pending)
                pending = [part]
                self._close(pending)
                pending = []
            else:
                pending.append(part)
        self._close(pending)

    def _close(self, parts: list[Tensor]) -> None:
        if parts:
            self.groups.append((onednn.pack(torch.cat(parts)), [len(part) for part in parts]))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        outputs: list[Tensor] = []
        for packed, sizes in self.groups:
            y = onednn.linear(x, packed)
            outputs.extend(y.split(sizes, dim=-1) if len(sizes) > 1 else (y,))
        return tuple(outputs)


class PackedMLP(nn.Module):
    def __init__(self, plain: MLP, scale: Tensor) -> None:
        super().__init__()
        gate, up = (plain.gate_up_proj.weight * scale).chunk(2)
        self.gate, self.up = onednn.pack(gate), onednn.pack(up)
        self.down = onednn.pack(plain.down_proj.weight)

    def forward(self, x: Tensor) -> Tensor:
        gate = onednn.linear(x, self.gate, "swish")
        return onednn.linear(onednn.linear_times(x, self.up, gate), self.down)


class UnweightedNorm(nn.Module):
    """x * rsqrt(mean x^2 + eps) in two passes; what follows has the weights."""

    def __init__(self, plain: RMSNorm) -> None:
        super().__init__()
        self.eps = plain.eps

    def forward(self, x: Tensor) -> Tensor:
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x * size.square_().div_(x.shape[-1]).add_(self.eps).rsqrt_()


@torch.no_grad()
def pack_weights(model: Hybrid) -> None:
    """Replace the blocks' matrices by packed ones, in place. fp32 on the CPU; embeddings and head stay as they are."""
    for block in model.blocks:
        pack_block(block)


@torch.no_grad()
def pack_block(block: Any) -> None:
    """The same for one block; its modules become ones of other types."""
    mixer, norm = block.mixer, 1.0 + block.mixer_norm.weight
    attends = isinstance(mixer, GatedAttention)
    if attends:
        mixer.q_proj = PackedLinear(mixer.q_proj.weight * norm)
        mixer.kv_proj = PackedProjections(mixer.kv_proj.weight * norm, mixer.kv_proj.sizes)
        mixer.o_proj = PackedLinear(mixer.o_proj.weight)
    else:
        mixer.in_proj = PackedProjections(mixer.in_proj.weight * norm, mixer.in_proj.sizes)
        mixer.out_proj = PackedLinear(mixer.out_proj.weight)
    block.mlp = PackedMLP(block.mlp, 1.0 + block.mlp_norm.weight)
    block.mixer_norm, block.mlp_norm = UnweightedNorm(block.mixer_norm), UnweightedNorm(block.mlp_norm)
