"""The definition: every sequence alone, its whole score matrix in fp32."""

from collections.abc import Sequence

import torch
from torch import Tensor


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    lengths: Sequence[int],
    parents: Sequence[int],
    past: Sequence[tuple[Tensor, Tensor]],
    select: Tensor | None = None,
) -> Tensor:
    Hq, D = q.shape[1:]
    ratio = Hq // k.shape[1]
    if select is not None:
        q = q.new_zeros(len(k), Hq, D).index_copy(0, select, q)
    outputs, row = [q[:0]], 0
    for length, parent in zip(lengths, parents, strict=True):
        rows = slice(row, row + length)
        K, V = (x[rows].transpose(0, 1) for x in (k, v))
        if parent >= 0:
            K, V = (torch.cat([old, new], dim=1) for old, new in zip(past[parent], (K, V), strict=True))
        K, V = (x.repeat_interleave(ratio, dim=0) for x in (K, V))
        scores = torch.einsum("thd,hnd->htn", q[rows].float(), K.float()) * D**-0.5
        seen = torch.arange(K.shape[1])[None] <= torch.arange(K.shape[1] - length, K.shape[1])[:, None]
        weights = scores.masked_fill(~seen.to(q.device), -torch.inf).softmax(-1)
        outputs.append(torch.einsum("htn,hnd->thd", weights, V.float()).type_as(q))
        row += length
    out = torch.cat(outputs)
    return out if select is None else out[select]
