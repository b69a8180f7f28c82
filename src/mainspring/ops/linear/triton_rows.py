"""Products of a few rows: bound by the weights' bytes, so what stands around them is done on the way, where it pays.

A program has OUTPUTS rows of the weights and streams them past all rows of x; x is read again by every program, from
cache. On the way in x may become a gated head norm; on the way out two halves may become silu(gate) * up. Where outputs
are few, the inner dimension is cut in SPLITS fixed parts, whose fp32 sums the next norm on the residual adds up in
their order.

    normed(h, parts, w, W):  total = h + sum parts;  x = rms(total) (1 + w);  x W^T
    gated(o, z, w, W):       o * rsqrt(mean o^2 + eps) * w * silu(z) a head;  x W^T, in parts
    summed(x, W):            x W^T, in parts
    plain(x, W):             x W^T
    norm(h, parts, w):       rms(h + sum parts) (1 + w)

The residual sum and its norm are a launch of their own (2 us): within the product each of some hundred programs would
read all parts again, and the compiler either loads nothing ahead or keeps every part in shared memory (10 and 70 us on
an H200 where the product takes 7). A row's bits depend on no other row, and on their number only through the tile's
rows (`tile`): 16, 32 or 64.

Floor: the weights' bytes once; x T K values from cache a program.
"""

from typing import Literal, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_ROWS = 64
"""Of a tile; more rows read the weights again, from cache where they are near in time."""
PROGRAMS = 512
"""Wanted of a product that is cut: four for each of 132 multiprocessors."""
LARGE, WIDE = 1 << 24, 1 << 15
"""Weights (of one half, where there are two) from which on more programs of fewer bytes are quicker, and outputs from
which on, as of a head, wider tiles are."""
EXACT = "tf32x3"
PLAIN, HEADS = (tl.constexpr(n) for n in range(2))


Kind = Literal["plain", "swiglu", "gated", "summed"]


class Tile(NamedTuple):
    rows: int
    outputs: int
    inner: int
    warps: int
    stages: int


def tile(rows: int, outputs: int, inner: int, kind: Kind = "plain") -> Tile:
    """The quickest of some sixty a kind on one H200, at 1, 8 and 32 rows of the 0.8B shape and 8 of the 4B one."""
    high = min(max(16, triton.next_power_of_2(rows)), MOST_ROWS)
    large = outputs * inner >= LARGE
    if kind == "gated":
        return Tile(high, 64, 128, 8, 3)
    if kind == "swiglu":
        if high == 16:
            return Tile(high, 32, 64, 4, 5) if large else Tile(high, 32, 128, 4, 6)
        return Tile(high, 16, 128, 2, 4)
    if kind == "summed":
        return Tile(high, 32, 64, 2, 4 if large else 6) if high == 16 else Tile(high, 32, 64, 4, 4)
    if high == 16 and large and outputs <= WIDE:
        return Tile(high, 16, 128, 2, 5)
    wide = 32 if outputs <= WIDE else 64
    return Tile(high, wide, 256, 4, 3) if high == 16 else Tile(high, wide, 128, 4, 4)


def splits(outputs: int, inner: int) -> int:
    """Of the inner dimension, from the shape of the weights alone."""
    wanted = PROGRAMS // max(triton.cdiv(outputs, 32), 1)
    return max(1, min(8, triton.next_power_of_2(max(wanted, 1)), inner // 256))


@triton.jit(do_not_specialize=["T"])
def _rows(
    x, x_stride, scale, z, z_stride, weight, out, T, N, K, eps,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INNER: tl.constexpr, WAY: tl.constexpr, SPLITS: tl.constexpr,
    SWIGLU: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    split = tl.program_id(2)
    long = tl.cdiv(tl.cdiv(K, INNER), SPLITS) * INNER
    KIND: tl.constexpr = x.dtype.element_ty
    live = (row < T)[:, None]
    line = row.to(tl.int64)[:, None]
    wanted = (n < N)[:, None]
    of_w = weight + n.to(tl.int64)[:, None] * K
    acc = tl.zeros((ROWS, OUTPUTS), tl.float32)
    other = tl.zeros((ROWS, OUTPUTS), tl.float32)
    for at in range(split * long, tl.minimum((split + 1) * long, K), INNER):
        k = at + tl.arange(0, INNER)
        inside = (k < K)[None, :]
        W = tl.load(of_w + k[None, :], mask=wanted & inside, other=0.0)
        X = tl.load(x + line * x_stride + k[None, :], mask=live & inside, other=0.0)
        if WAY == HEADS:  # INNER is a head's size
            wide = X.to(tl.float32)
            gate = tl.load(z + line * z_stride + k[None, :], mask=live & inside, other=0.0).to(tl.float32)
            factor = tl.load(scale + tl.arange(0, INNER)).to(tl.float32)
            wide = wide * tl.rsqrt(tl.sum(wide * wide, 1) / INNER + eps)[:, None] * factor[None, :]
            X = (wide * gate * tl.sigmoid(gate)).to(KIND)
        acc = tl.dot(X, tl.trans(W), acc, input_precision=EXACT)
        if SWIGLU:
            up = tl.load(of_w + N.to(tl.int64) * K + k[None, :], mask=wanted & inside, other=0.0)
            other = tl.dot(X, tl.trans(up), other, input_precision=EXACT)
    if SWIGLU:
        acc = acc * tl.sigmoid(acc) * other
    at_out = out + (split * T + line) * N + n[None, :]
    tl.store(at_out, acc.to(out.dtype.element_ty), mask=live & (n < N)[None, :])


@triton.jit
def _add_norm(h, parts, scale, total, out, K, eps, P: tl.constexpr, WIDE: tl.constexpr):
    row, T = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    k = tl.arange(0, WIDE)
    inside = k < K
    x = tl.load(h + row * K + k, mask=inside, other=0.0).to(tl.float32)
    factor = 1.0 + tl.load(scale + k, mask=inside, other=0.0).to(tl.float32)
    for p in tl.static_range(P):  # all loads on their way at once
        x += tl.load(parts + (p * T + row) * K + k, mask=inside, other=0.0)
    rounded = x.to(h.dtype.element_ty)
    if P > 0:
        tl.store(total + row * K + k, rounded, mask=inside)
    x = rounded.to(tl.float32)
    x = x * tl.rsqrt(tl.sum(x * x, 0) / K + eps) * factor
    tl.store(out + row * K + k, x.to(out.dtype.element_ty), mask=inside)


def add_norm(h: Tensor, parts: Tensor | None, scale: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(total [T, K], its norm [T, K]), in h's type; `parts` [P, T, K] fp32. Without parts the total is h itself."""
    T, K = h.shape
    out = torch.empty_like(h)
    total = h if parts is None else torch.empty_like(h)
    _add_norm[(T,)](
        h, h if parts is None else parts, scale, total, out, K, eps,
        P=0 if parts is None else len(parts), WIDE=triton.next_power_of_2(K), num_warps=8,
    )  # fmt: skip
    return total, out


def norm(h: Tensor, parts: Tensor, scale: Tensor, eps: float) -> Tensor:
    """[T, K] in h's type."""
    return add_norm(h, parts, scale, eps)[1]


def _launch(
    x: Tensor, weight: Tensor, out: Tensor, way: int, *, outputs: int, cuts: int = 1,
    scale: Tensor | None = None, z: Tensor | None = None, eps: float = 0.0, inner: int | None = None,
    kind: Kind = "plain",
) -> None:  # fmt: skip
    T, K = x.shape
    t = tile(T, outputs, K, kind)
    gate = x if z is None else z
    grid = (triton.cdiv(outputs, t.outputs), triton.cdiv(T, t.rows), cuts)
    _rows[grid](
        x, x.stride(0), x if scale is None else scale, gate, gate.stride(0), weight, out,
        T, outputs, K, eps,
        ROWS=t.rows, OUTPUTS=t.outputs, INNER=inner or min(t.inner, triton.next_power_of_2(K)), WAY=way, SPLITS=cuts,
        SWIGLU=kind == "swiglu", EXACT=EXACT, num_warps=t.warps, num_stages=t.stages,
    )  # fmt: skip


def normed(
    h: Tensor, parts: Tensor | None, scale: Tensor, weight: Tensor, eps: float, *, swiglu: bool = False
) -> tuple[Tensor, Tensor]:
    """(total [T, K], product [T, N] or, with `swiglu`, [T, N / 2]); `parts` [P, T, K] fp32. Without parts the total is
    h itself."""
    outputs = len(weight) // 2 if swiglu else len(weight)
    total, x = add_norm(h, parts, scale, eps)
    out = h.new_empty(len(h), outputs)
    _launch(x, weight, out, PLAIN.value, outputs=outputs, kind="swiglu" if swiglu else "plain")
    return total, out


def gated(o: Tensor, z: Tensor, scale: Tensor, weight: Tensor, eps: float) -> Tensor:
    """[P, T, N] fp32; o [T, Hv dv], z [T, Hv dv] with any row stride, scale [dv]."""
    N, K = weight.shape
    cuts = splits(N, K)
    out = o.new_empty(cuts, len(o), N, dtype=torch.float32)
    _launch(
        o, weight, out, HEADS.value, outputs=N, cuts=cuts, scale=scale, z=z, eps=eps, inner=len(scale), kind="gated"
    )  # fmt: skip
    return out


def summed(x: Tensor, weight: Tensor) -> Tensor:
    """[P, T, N] fp32."""
    N, K = weight.shape
    cuts = splits(N, K)
    out = x.new_empty(cuts, len(x), N, dtype=torch.float32)
    _launch(x, weight, out, PLAIN.value, outputs=N, cuts=cuts, kind="summed")
    return out


def plain(x: Tensor, weight: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """[T, N] in `dtype`, None: x's."""
    out = x.new_empty(len(x), len(weight), dtype=dtype or x.dtype)
    _launch(x, weight, out, PLAIN.value, outputs=len(weight))
    return out
