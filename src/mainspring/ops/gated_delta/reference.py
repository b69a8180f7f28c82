"""Token by token in fp32, as the paper writes it. Slow, and the oracle for everything else."""

from collections.abc import Sequence

import torch
from torch import Tensor


def gated_delta(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    g: Tensor,
    *,
    lengths: Sequence[int],
    parents: Sequence[int],
    initial: Sequence[Tensor] | Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor | None]:
    _, Hv, dv = v.shape
    ratio = Hv // q.shape[1]
    q, k = (x.repeat_interleave(ratio, dim=1) for x in (q, k))
    outputs, finals, row = [], [], 0
    for length, parent in zip(lengths, parents, strict=True):
        S = v.new_zeros(Hv, q.shape[-1], dv) if parent < 0 or initial is None else initial[parent]
        for t in range(row, row + length):
            S = S * g[t].exp()[:, None, None]
            delta = beta[t][:, None] * (v[t] - torch.einsum("hkv,hk->hv", S, k[t]))
            S = S + k[t][:, :, None] * delta[:, None, :]
            outputs.append(torch.einsum("hkv,hk->hv", S, q[t]))
        finals.append(S)
        row += length
    out = torch.stack(outputs) if outputs else v.new_zeros(0, Hv, dv)
    return out, torch.stack(finals) if keep else None
