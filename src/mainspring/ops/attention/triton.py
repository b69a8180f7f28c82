"""Online softmax over blocks of keys, read where they lie: views causally, branches against their view and themselves.

The q-heads of a kv-head are rows of one tile, so a key is read once a group. Nothing the size of a mask or a score
matrix is in memory: what a row sees follows from its numbers in `tiles`. A branch tile whose view is long is worked on
by several programs; `_join` adds their parts in the order of the keys. The output gate is applied on the way out.

Roofline: 4 D operations a visible pair and q-head, on tensor cores; exponentials are the other limit.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from mainspring.ops import ragged
from mainspring.ops.attention import tiles

ITEM = tl.constexpr(tiles.ITEM)
LOWEST = tl.constexpr(-1e30)


class Tiling(NamedTuple):
    """Query rows times heads a tile, keys a step, and how the compiler lays them out."""

    rows: int
    keys: int
    warps: int
    stages: int

    def query_rows(self, ratio: int) -> int:
        """Rows of the pass a tile, `ratio` q-heads each."""
        return self.rows // ratio


def tilings(D: int, element: int) -> tuple[tuple[Tiling, Tiling], tuple[Tiling, Tiling]]:
    """Of views and of branches: where rows are few (more programs, each of less work), and where they are many; for
    heads of D values of `element` bytes, in 227 KB of shared memory."""
    if D * element > 512:
        return ((Tiling(64, 32, 4, 1),) * 2,) * 2
    few = (Tiling(64, 64, 4, 2),) * 2
    return few, (Tiling(128, 64, 8, 2),) * 2 if D > 128 else (Tiling(128, 64, 4, 3), Tiling(64, 64, 4, 3))


@triton.jit
def _step(
    Q, acc, m, top, base, j, seen, kh, scale,
    G: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """One block of keys `j`; `seen` [rows, keys] where MASKED."""
    d = tl.arange(0, D)
    at = base + j[:, None] * (2 * G * D) + (kh * D + d)[None, :]
    at = tl.multiple_of(at, (1, 16))
    if MASKED:
        valid = tl.max(seen.to(tl.int32), 0) > 0
        K = tl.load(at, mask=valid[:, None], other=0.0)
        V = tl.load(at + G * D, mask=valid[:, None], other=0.0)
    else:
        K = tl.load(at)
        V = tl.load(at + G * D)
    scores = tl.dot(Q, tl.trans(K), input_precision=EXACT)
    if MASKED:
        scores = tl.where(seen, scores, -float("inf"))
    new = tl.maximum(m, tl.max(scores, 1) * scale)
    weights = tl.exp2(scores * scale - new[:, None])
    shrink = tl.exp2(m - new)
    acc = acc * shrink[:, None] + tl.dot(weights.to(V.dtype), V, input_precision=EXACT)
    return acc, new, top * shrink + tl.sum(weights, 1)


@triton.jit(do_not_specialize=["layer", "views"])
def _attend(
    q, gate, gate_stride, items, first, last, stores, layer, own, out, parts, sums, scale, views,
    G: tl.constexpr, RATIO: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    CAUSAL: tl.constexpr, MIXED: tl.constexpr, GATED: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """MIXED: rows from number `views` on are branches', those before it views'; `first` counts from there."""
    number, kh = tl.program_id(0), tl.program_id(1)
    item = items + number * ITEM
    count = tl.load(item + 1)
    if count == 0:
        return
    owner, splits = tl.load(item + 2), tl.load(item + 8)
    lo, full, hi = tl.load(item + 3), tl.load(item + 4), tl.load(item + 5)
    i, d, n = tl.arange(0, ROWS), tl.arange(0, D), tl.arange(0, KEYS)
    live = i // RATIO < count
    row = (tl.load(item) + i // RATIO).to(tl.int64)
    head = kh * RATIO + i % RATIO
    Q = tl.load(q + (row * (G * RATIO) + head)[:, None] * D + d[None, :], mask=live[:, None], other=0.0)
    until = tl.load(last + row, mask=live, other=-1)
    address = tl.load(stores + 2 * owner) + layer * tl.load(stores + 2 * owner + 1)
    base = address.to(tl.pointer_type(q.dtype.element_ty))
    acc = tl.zeros((ROWS, D), tl.float32)
    m = tl.full((ROWS,), LOWEST, tl.float32)
    top = tl.zeros((ROWS,), tl.float32)
    for at in range(lo, full, KEYS):
        acc, m, top = _step(Q, acc, m, top, base, at + n, live, kh, scale, G, D, False, EXACT)
    for at in range(full, hi, KEYS):
        j = at + n
        seen = live[:, None] & (j < hi)[None, :]
        if CAUSAL:
            seen = seen & (j[None, :] <= until[:, None])
        if MIXED:
            seen = seen & ((j[None, :] <= until[:, None]) | (row >= views)[:, None])
        acc, m, top = _step(Q, acc, m, top, base, j, seen, kh, scale, G, D, True, EXACT)
    if not CAUSAL:
        if MIXED:
            since = tl.load(first + (row - views), mask=live & (row >= views), other=0)
        else:
            since = tl.load(first + row, mask=live, other=0)
        own_hi = tl.load(item + 7)
        for at in range(tl.load(item + 6), own_hi, KEYS):
            j = at + n
            seen = (j[None, :] >= since[:, None]) & (j[None, :] <= until[:, None]) & (j < own_hi)[None, :]
            acc, m, top = _step(Q, acc, m, top, own, j, seen, kh, scale, G, D, True, EXACT)
    acc = acc / tl.where(top > 0, top, 1.0)[:, None]
    if splits == 1:
        if GATED:
            of_gate = gate + row[:, None] * gate_stride + (head * 2 * D + D)[:, None] + d[None, :]
            acc *= tl.sigmoid(tl.load(of_gate, mask=live[:, None], other=0.0).to(tl.float32))
        at_out = out + (row * (G * RATIO) + head)[:, None] * D + d[None, :]
        tl.store(at_out, acc.to(out.dtype.element_ty), mask=live[:, None])
    else:
        line = (number * G + kh).to(tl.int64) * ROWS + i
        tl.store(parts + line[:, None] * D + d[None, :], acc)
        tl.store(sums + line, tl.where(top > 0, m + tl.log2(tl.where(top > 0, top, 1.0)), LOWEST))


@triton.jit
def _join(
    gate, gate_stride, table, out, parts, sums,
    G: tl.constexpr, RATIO: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    tile, kh = tl.program_id(0), tl.program_id(1)
    count, begin, splits = tl.load(table + 4 * tile + 1), tl.load(table + 4 * tile + 2), tl.load(table + 4 * tile + 3)
    if (count == 0) | (splits == 1):
        return
    i, d = tl.arange(0, ROWS), tl.arange(0, D)
    acc = tl.zeros((ROWS, D), tl.float32)
    m = tl.full((ROWS,), LOWEST, tl.float32)
    top = tl.zeros((ROWS,), tl.float32)
    for part in range(begin, begin + splits):
        line = (part * G + kh).to(tl.int64) * ROWS + i
        size = tl.load(sums + line)
        new = tl.maximum(m, size)
        shrink, weight = tl.exp2(m - new), tl.exp2(size - new)
        acc = acc * shrink[:, None] + tl.load(parts + line[:, None] * D + d[None, :]) * weight[:, None]
        top = top * shrink + weight
        m = new
    live = i // RATIO < count
    row = (tl.load(table + 4 * tile) + i // RATIO).to(tl.int64)
    head = kh * RATIO + i % RATIO
    acc = acc / tl.where(top > 0, top, 1.0)[:, None]
    if GATED:
        of_gate = gate + row[:, None] * gate_stride + (head * 2 * D + D)[:, None] + d[None, :]
        acc *= tl.sigmoid(tl.load(of_gate, mask=live[:, None], other=0.0).to(tl.float32))
    at_out = out + (row * (G * RATIO) + head)[:, None] * D + d[None, :]
    tl.store(at_out, acc.to(out.dtype.element_ty), mask=live[:, None])


EXACT = "tf32x3"


def attend(
    q: Tensor,
    out: Tensor,
    *,
    items: Tensor,
    last: Tensor,
    stores: Tensor,
    groups: int,
    tiling: Tiling,
    first: Tensor | None = None,
    own: Tensor | None = None,
    table: Tensor | None = None,
    split: bool = True,
    gate: Tensor | None = None,
    views: int = 0,
    layer: int = 0,
) -> None:
    """q and out [Q, Hq, D]; `items` int32 (`tiles`); `stores` [V, 2] int64: the address of rows [n, 2, G, D] in q's
    type (under 2^31 values of one layer) and the bytes to the next layer's. Views: `last` [Q] is each row's position.
    Branches: rows first[i]..last[i] of `own` [m, 2, G, D] are row i's own keys, `table` the tiles, `split` says whether
    any is cut. `gate` [Q, Hq, 2 D]: its second half gates. With `first` and `views`, none of them cut: the first rows,
    `views` of them, are views', the others branches', which `first`, `last` and `own` count from 0."""
    Hq, D = q.shape[1:]
    causal = first is None
    shape = {"G": groups, "RATIO": Hq // groups, "D": D, "ROWS": tiling.rows, "GATED": gate is not None}
    gated = q if gate is None else gate
    first, own = last if first is None else first, q if own is None else own
    parts, sums = out, out
    if table is not None and split:
        parts = q.new_empty(len(items) * groups * tiling.rows, D, dtype=torch.float32)
        sums = parts.new_empty(len(parts))
    _attend[(len(items), groups)](
        q, gated, gated.stride(0), items, first, last, stores, layer, own, out, parts, sums,
        D**-0.5 * math.log2(math.e), views,
        KEYS=tiling.keys, CAUSAL=causal, MIXED=views > 0, EXACT=EXACT, **shape,
        num_warps=tiling.warps, num_stages=tiling.stages,
    )  # fmt: skip
    if table is not None and split:
        _join[(len(table), groups)](gated, gated.stride(0), table, out, parts, sums, num_warps=8, **shape)


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
    """As the reference; D a power of two from 16 to 256. Sequences in the order of their parents, as in a pass; the
    past is copied into rows of key and value, as states keep them."""
    G, D = k.shape[1:]
    ratio, device = q.shape[1] // G, q.device
    if D not in (16, 32, 64, 128, 256):
        raise ValueError(f"head_dim {D}: known are 16, 32, 64, 128, 256")
    if any(a > b for a, b in pairwise(parents)):
        raise ValueError("sequences must come in the order of their parents")
    _, (_, tiling) = tilings(D, q.element_size())
    kept = [torch.stack([x.transpose(0, 1) for x in pair], dim=1).contiguous() for pair in past]
    long = np.asarray(lengths, np.int64)
    first = np.repeat(ragged.starts(long)[:-1], long).astype(np.int32)
    last = np.arange(len(first), dtype=np.int32)
    chosen = last if select is None else select.cpu().numpy().astype(np.int32)
    first, last = first[chosen], last[chosen]
    # Owner 0 has no keys; sequence n's owner is its parent's place after it.
    owner = np.repeat(np.asarray(parents) + 1, long)[chosen]
    queries = np.bincount(owner, minlength=len(past) + 1)
    keys = [0, *(len(rows) for rows in kept)]
    items, table = tiles.branch_items(queries, keys, first, last, rows=tiling.query_rows(ratio), block=tiling.keys)
    out = torch.empty_like(q)
    if len(items):
        attend(
            q, out, groups=G, tiling=tiling, own=torch.stack([k, v], dim=1),
            items=torch.from_numpy(items).to(device), table=torch.from_numpy(table).to(device),
            first=torch.from_numpy(first).to(device), last=torch.from_numpy(last).to(device),
            stores=torch.tensor([[0, 0], *([x.data_ptr(), 0] for x in kept)], dtype=torch.long, device=device),
        )  # fmt: skip
    return out
