"""A round's few rows of many slots over their keys, cut by position alone; then joined in the order of the keys.

    _cut   a slot, kv-head and SPLIT_KEYS keys a program: q-heads of the kv-head and the slot's rows packed as rows,
           so a key is read once for all of them; leaves its average and log-sum
    _join  a row and q-head a program: the cuts of its slot one after another, and the gate

Cuts lie at multiples of SPLIT_KEYS and steps within one at multiples of KEYS, whatever the slot's length, the other
rows or slots are. A step that a row does not see adds exact zeros to it, so its bits depend on its own position only.

Floor a slot and layer: 2 G D values a key, once.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from mainspring.ops.attention.triton import EXACT, LOWEST, _step
from mainspring.ops.rounds import PLAN as PLAN_WORDS

PLAN = tl.constexpr(PLAN_WORDS)
SPLIT_KEYS, KEYS = 128, 64
"""128 programs for one slot of the 0.8B shape at 8,192 keys; cuts of 256 took a 4B step 0.08 ms longer on one H200."""


@triton.jit(do_not_specialize=["layer"])
def _cut(
    q, plan, stores, layer, parts, sums, splits, scale,
    G: tl.constexpr, RATIO: tl.constexpr, D: tl.constexpr, R: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    SPLIT: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    split, kh, lane = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot, count = tl.load(plan + lane * PLAN), tl.load(plan + lane * PLAN + 1)
    start = tl.load(plan + lane * PLAN + 4)
    lo, end = split * SPLIT, start + count
    if (count == 0) | (lo >= end):
        return
    hi = tl.minimum(lo + SPLIT, end)
    i, d, n = tl.arange(0, ROWS), tl.arange(0, D), tl.arange(0, KEYS)
    live = i // RATIO < count
    row = (lane * R + i // RATIO).to(tl.int64)
    head = kh * RATIO + i % RATIO
    Q = tl.load(q + (row * (G * RATIO) + head)[:, None] * D + d[None, :], mask=live[:, None], other=0.0)
    until = start + i // RATIO
    address = tl.load(stores + 2 * slot) + layer * tl.load(stores + 2 * slot + 1)
    base = address.to(tl.pointer_type(q.dtype.element_ty))
    acc = tl.zeros((ROWS, D), tl.float32)
    m = tl.full((ROWS,), LOWEST, tl.float32)
    top = tl.zeros((ROWS,), tl.float32)
    full = tl.maximum(lo, tl.minimum(hi, (start + 1) // KEYS * KEYS))  # before it every row sees every key
    for at in range(lo, full, KEYS):
        acc, m, top = _step(Q, acc, m, top, base, (at + n).to(tl.int64), live, kh, scale, G, D, False, EXACT)
    for at in range(full, hi, KEYS):
        j = at + n
        seen = live[:, None] & (j < hi)[None, :] & (j[None, :] <= until[:, None])
        acc, m, top = _step(Q, acc, m, top, base, j.to(tl.int64), seen, kh, scale, G, D, True, EXACT)
    line = ((lane * G + kh).to(tl.int64) * splits + split) * ROWS + i
    tl.store(parts + line[:, None] * D + d[None, :], acc / tl.where(top > 0, top, 1.0)[:, None], mask=live[:, None])
    tl.store(sums + line, tl.where(top > 0, m + tl.log2(tl.where(top > 0, top, 1.0)), LOWEST), mask=live)


@triton.jit
def _join(
    gate, gate_stride, plan, out, parts, sums, splits,
    G: tl.constexpr, RATIO: tl.constexpr, D: tl.constexpr, R: tl.constexpr, ROWS: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    line, head = tl.program_id(0), tl.program_id(1)
    lane, inside = line // R, line % R
    count, start = tl.load(plan + lane * PLAN + 1), tl.load(plan + lane * PLAN + 4)
    d = tl.arange(0, D)
    at_out = out + (line.to(tl.int64) * (G * RATIO) + head) * D + d
    if inside >= count:
        tl.store(at_out, tl.zeros((D,), out.dtype.element_ty))
        return
    acc = tl.zeros((D,), tl.float32)
    m = tl.full((1,), LOWEST, tl.float32)
    top = tl.zeros((1,), tl.float32)
    first = (lane * G + head // RATIO).to(tl.int64) * splits
    for split in range(tl.cdiv(start + inside + 1, SPLIT)):
        at = (first + split) * ROWS + inside * RATIO + head % RATIO
        size = tl.load(sums + at + tl.arange(0, 1))
        new = tl.maximum(m, size)
        shrink, weight = tl.exp2(m - new), tl.exp2(size - new)
        acc = acc * shrink + tl.load(parts + at * D + d) * weight
        top = top * shrink + weight
        m = new
    of_gate = gate + line.to(tl.int64) * gate_stride + head * 2 * D + D + d
    acc = acc / top * tl.sigmoid(tl.load(of_gate).to(tl.float32))
    tl.store(at_out, acc.to(out.dtype.element_ty))


def splits_of(keys: int) -> int:
    return max(1, -(-keys // SPLIT_KEYS))


def decode(
    q: Tensor, gate: Tensor, *, plan: Tensor, stores: Tensor, groups: int, splits: int, layer: int = 0
) -> Tensor:
    """[N R, Hq, D]: gated outputs, zero for rows that are not there. q of the same shape; gate [N R, Hq, 2 D] with any
    row stride, its second half gates; stores [S, 2] int64: the address of a slot's rows [capacity, 2, G, D] in q's type
    and the bytes to the next layer's. `splits` are at least those of the longest slot, the round's rows included."""
    T, Hq, D = q.shape
    N = len(plan)
    R, ratio = T // N, Hq // groups
    rows = max(16, triton.next_power_of_2(R * ratio))
    parts = q.new_empty(N * groups * splits * rows, D, dtype=torch.float32)
    sums = parts.new_empty(len(parts))
    out = torch.empty_like(q)
    shape = {"G": groups, "RATIO": ratio, "D": D, "R": R, "ROWS": rows, "SPLIT": SPLIT_KEYS}
    _cut[(splits, groups, N)](
        q, plan, stores, layer, parts, sums, splits, D**-0.5 * math.log2(math.e), KEYS=KEYS, EXACT=EXACT,
        num_warps=4 if rows <= 32 else 8, num_stages=2, **shape,
    )  # fmt: skip
    _join[(T, Hq)](gate, gate.stride(0), plan, out, parts, sums, splits, num_warps=1, **shape)
    return out
