"""A label a program."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _label(h, weight, head, rows, ids, out, eps, N: tl.constexpr, WIDE: tl.constexpr):
    label = tl.program_id(0)
    i = tl.arange(0, WIDE)
    mask = i < N
    x = tl.load(h + tl.load(rows + label).to(tl.int64) * N + i, mask=mask, other=0.0).to(tl.float32)
    e = tl.load(head + tl.load(ids + label).to(tl.int64) * N + i, mask=mask, other=0.0).to(tl.float32)
    w = 1.0 + tl.load(weight + i, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / N + eps)
    tl.store(out + label, tl.sum(x * w * e, 0) * scale)


def label_logits(h: Tensor, weight: Tensor, head: Tensor, rows: Tensor, ids: Tensor, eps: float) -> Tensor:
    out = h.new_empty(len(ids), dtype=torch.float32)
    N = h.shape[1]
    if len(ids):
        wide = triton.next_power_of_2(N)
        _label[(len(ids),)](h, weight, head, rows, ids, out, eps, N=N, WIDE=wide, num_warps=4)
    return out
