"""Lays a network's matrices out for oneDNN, from outside: the network's own code stays plain.

Products of several parts give each large part a matrix of its own, so that what follows reads contiguous rows, and the
MLP's activation runs inside the products (silu with the gate, the multiplication with the up half): two passes over
[T, F] less a layer.
"""

import torch
from torch import Tensor, nn

from mainspring.model.hybrid import MLP, Hybrid, Projections
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

    def __init__(self, plain: Projections) -> None:
        super().__init__()
        self.groups: list[tuple[Tensor, list[int]]] = []
        pending: list[Tensor] = []
        for part in plain.weight.split(plain.sizes):
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
    def __init__(self, plain: MLP) -> None:
        super().__init__()
        gate, up = plain.gate_up_proj.weight.chunk(2)
        self.gate, self.up = onednn.pack(gate), onednn.pack(up)
        self.down = onednn.pack(plain.down_proj.weight)

    def forward(self, x: Tensor) -> Tensor:
        gate = onednn.linear(x, self.gate, "swish")
        return onednn.linear(onednn.linear_times(x, self.up, gate), self.down)


def pack_weights(model: Hybrid) -> None:
    """Replace the blocks' matrices by packed ones, in place. fp32 on the CPU; embeddings and head stay as they are."""
    for block in model.blocks:
        for name, child in list(block.named_modules()):
            parent = block.get_submodule(name.rpartition(".")[0])
            leaf = name.rpartition(".")[2]
            if isinstance(child, MLP):
                setattr(parent, leaf, PackedMLP(child))
            elif isinstance(child, Projections):
                setattr(parent, leaf, PackedProjections(child))
            elif isinstance(child, nn.Linear):
                setattr(parent, leaf, PackedLinear(child.weight))
