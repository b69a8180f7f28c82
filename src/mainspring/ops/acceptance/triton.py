"""The largest logit of each row, lowest id among equals: two launches over the whole vocabulary.

    _blocks  BLOCK ids of a row a program: the largest and its id; an id of NOT_FINITE where a value is NaN
    _rows    a row a program: the first block that has the largest

Floor: 4 V bytes a row.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mainspring.ops import rounds

BLOCK = 4096
BAD = tl.constexpr(rounds.NOT_FINITE)


@triton.jit
def _blocks(logits, stride, values, ids, vocab, BLOCK: tl.constexpr):
    row, block = tl.program_id(0), tl.program_id(1)
    i = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row.to(tl.int64) * stride + i, mask=i < vocab, other=-float("inf"))
    best = tl.max(x, 0)
    first = tl.min(tl.where(x == best, i, vocab), 0)
    bad = tl.max((x != x).to(tl.int32), 0)
    at = row * tl.num_programs(1) + block
    tl.store(values + at, best)
    tl.store(ids + at, tl.where(bad > 0, BAD, first))


@triton.jit
def _rows(values, ids, chosen, count, vocab, PAD: tl.constexpr):
    row, b = tl.program_id(0), tl.arange(0, PAD)
    here = b < count
    value = tl.load(values + row * count + b, mask=here, other=-float("inf"))
    at = tl.load(ids + row * count + b, mask=here, other=vocab)
    bad = tl.max((at < 0).to(tl.int32), 0)
    best = tl.max(value, 0)
    found = tl.min(tl.where(value == best, at, vocab), 0)
    finite = (bad == 0) & (tl.abs(best) < float("inf"))
    tl.store(chosen + row, tl.where(finite, found, BAD))


def largest(logits: Tensor) -> Tensor:
    """[T] int32 of logits [T, V] fp32; NOT_FINITE where a value is NaN or the largest is infinite."""
    T, V = logits.shape
    blocks = triton.cdiv(V, BLOCK)
    values = logits.new_empty(T, blocks)
    ids = torch.empty(T, blocks, dtype=torch.int32, device=logits.device)
    chosen = ids.new_empty(T)
    if T:
        _blocks[(T, blocks)](logits, logits.stride(0), values, ids, V, BLOCK=BLOCK, num_warps=8)
        _rows[(T,)](values, ids, chosen, blocks, V, PAD=triton.next_power_of_2(blocks), num_warps=4)
    return chosen
