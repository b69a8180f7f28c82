"""The definition, in fp32."""

import torch
from torch import Tensor


def queries(x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, eps: float) -> Tensor:
    return _rotate(_norm(x[..., : x.shape[-1] // 2], weight, eps), cos, sin).type_as(x)


def keys_values(k: Tensor, v: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, eps: float) -> Tensor:
    return torch.stack([_rotate(_norm(k, weight, eps), cos, sin).type_as(k), v], dim=1)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * (1.0 + weight.float())


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = cos.shape[-1]
    first, second, rest = x.split([half, half, x.shape[-1] - 2 * half], dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)
