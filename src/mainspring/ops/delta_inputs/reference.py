"""The definition, a step after the other in the input's type, norms and gates in fp32."""

from collections.abc import Sequence

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mainspring.ops.causal_conv.reference import causal_conv
from mainspring.ops.delta_inputs import Heads


def delta_inputs(
    projected: Tensor,
    weight: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    *,
    heads: Heads,
    lengths: Sequence[int],
    parents: Sequence[int],
    history: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    Hk, Hv, d = heads
    sizes = [heads.channels, Hv * d, Hv, Hv]
    u, _, b, a = projected.split(sizes, dim=-1)
    y, tails = causal_conv(u, weight, lengths=lengths, parents=parents, history=history, keep=keep)
    q, k, v = (x.unflatten(-1, (-1, d)) for x in y.split([Hk * d, Hk * d, Hv * d], dim=-1))
    q, k = _unit(q.float()) * d**-0.5, _unit(k.float())
    g = -A_log.float().exp() * F.softplus(a.float() + dt_bias.float())
    return q.type_as(projected), k.type_as(projected), v, b.float().sigmoid(), g, tails


def _unit(x: Tensor) -> Tensor:
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
