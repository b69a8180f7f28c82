"""The definition."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def add_rms_norm(h: Tensor, y: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    total = h if y is None else h + y
    wide = total.float()
    normed = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * (1.0 + weight.float())
    return total, normed.type_as(h)


def gated_rms_norm(o: Tensor, z: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = o.float()
    normed = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.float()
    return (normed.flatten(1) * F.silu(z.float())).type_as(o)
