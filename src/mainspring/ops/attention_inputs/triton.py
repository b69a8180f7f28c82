"""A block of rows and one head a program; keys and values go straight to where they stay.

A row's place is `places` [T]: row number in the store of its owner (`owners` [T], an index into `stores`), or in `own`
where the owner is negative. So views write into their states and branches into the pass's own buffer, in one launch.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK_ROWS = 16


@triton.jit
def _normed(at, stride, weight, cos, sin, rows, live, eps, D: tl.constexpr, HALF: tl.constexpr):
    """[rows, D] fp32: the head at `at`, normed and rotated; a rotated dim's partner is loaded again, from cache."""
    d = tl.arange(0, D)
    rotated = d < 2 * HALF
    partner = tl.where(rotated, tl.where(d < HALF, d + HALF, d - HALF), d)
    line = rows.to(tl.int64)[:, None] * stride
    x = tl.load(at + line + d[None, :], mask=live[:, None], other=0.0).to(tl.float32)
    y = tl.load(at + line + partner[None, :], mask=live[:, None], other=0.0).to(tl.float32)
    norm = tl.rsqrt(tl.sum(x * x, 1) / D + eps)[:, None]
    x = x * norm * (1.0 + tl.load(weight + d).to(tl.float32))[None, :]
    y = y * norm * (1.0 + tl.load(weight + partner).to(tl.float32))[None, :]
    angle = rows.to(tl.int64)[:, None] * HALF + (d % HALF)[None, :]
    mask = live[:, None] & rotated[None, :]
    c = tl.load(cos + angle, mask=mask, other=1.0)
    s = tl.load(sin + angle, mask=mask, other=0.0)
    return x * c + tl.where((d < HALF)[None, :], -y, y) * s


@triton.jit(do_not_specialize=["T"])
def _queries(x, stride, weight, cos, sin, out, T, eps, D: tl.constexpr, HALF: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    _query(x, stride, weight, cos, sin, out, rows, T, eps, tl.program_id(1), tl.num_programs(1), D, HALF)


@triton.jit
def _query(x, stride, weight, cos, sin, out, rows, T, eps, head, heads, D: tl.constexpr, HALF: tl.constexpr):
    live = rows < T
    y = _normed(x + head * 2 * D, stride, weight, cos, sin, rows, live, eps, D, HALF)
    at = out + (rows.to(tl.int64) * heads + head)[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(at, y.to(out.dtype.element_ty), mask=live[:, None])


@triton.jit(do_not_specialize=["T", "layer"])
def _inputs(
    x, q_weight, out, k, v, stride, weight, cos, sin, owners, places, stores, own, layer, T, eps,
    HQ: tl.constexpr, G: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1) - HQ
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    if head < 0:
        _query(x, stride, q_weight, cos, sin, out, rows, T, eps, head + HQ, HQ, D, HALF)
        return
    live = rows < T
    owner = tl.load(owners + rows, mask=live, other=-1)
    place = tl.load(places + rows, mask=live, other=0).to(tl.int64)
    held = owner >= 0
    address = tl.load(stores + 2 * owner, mask=held, other=0)
    address += layer * tl.load(stores + 2 * owner + 1, mask=held, other=0)
    address = tl.where(held, address, own.to(tl.int64))
    live = live & (address != 0)
    base = address.to(tl.pointer_type(k.dtype.element_ty))[:, None]
    d = tl.arange(0, D)[None, :]
    if head < G:
        y = _normed(k + head * D, stride, weight, cos, sin, rows, live, eps, D, HALF)
        to = tl.multiple_of(base + (place * (2 * G) + head)[:, None] * D + d, (1, 16))
        tl.store(to, y.to(k.dtype.element_ty), mask=live[:, None])
    else:
        at = v + (head - G) * D + rows.to(tl.int64)[:, None] * stride + d
        to = tl.multiple_of(base + (place * (2 * G) + head)[:, None] * D + d, (1, 16))
        tl.store(to, tl.load(at, mask=live[:, None], other=0.0), mask=live[:, None])


def queries(x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, eps: float) -> Tensor:
    T, Hq, D = x.shape[0], x.shape[1], x.shape[2] // 2
    out = x.new_empty(T, Hq, D)
    _queries[(triton.cdiv(T, BLOCK_ROWS), Hq)](
        x, x.stride(0), weight, cos, sin, out, T, eps, D=D, HALF=cos.shape[1], ROWS=BLOCK_ROWS, num_warps=4
    )
    return out


def store_keys_values(
    k: Tensor,
    v: Tensor,
    weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    eps: float,
    *,
    owners: Tensor,
    places: Tensor,
    stores: Tensor,
    own: Tensor,
    layer: int = 0,
    x: Tensor | None = None,
    q_weight: Tensor | None = None,
) -> Tensor:
    """As `keys_values`, but written into the stores: `stores` [V, 2] int64, the address of rows [n, 2, G, D] and the
    bytes to the next layer's; `own` [m, 2, G, D]. A store at address 0 is not written. With `x` and `q_weight`, of the
    same rows and stride, it does the work of `queries` too, in the same launch, and returns them [T, Hq, D]."""
    T, G, D = k.shape
    heads = 0 if x is None else x.shape[1]
    x, q_weight = k if x is None else x, weight if q_weight is None else q_weight
    out = k.new_empty(T, heads, D)
    _inputs[(triton.cdiv(T, BLOCK_ROWS), heads + 2 * G)](
        x, q_weight, out, k, v, k.stride(0), weight, cos, sin, owners, places, stores, own, layer, T, eps,
        HQ=heads, G=G, D=D, HALF=cos.shape[1], ROWS=BLOCK_ROWS, num_warps=4,
    )  # fmt: skip
    return out


def keys_values(k: Tensor, v: Tensor, weight: Tensor, cos: Tensor, sin: Tensor, eps: float) -> Tensor:
    T = len(k)
    out = k.new_empty(T, 2, *k.shape[1:])
    store_keys_values(
        k, v, weight, cos, sin, eps, own=out,
        owners=torch.full((T,), -1, dtype=torch.int32, device=k.device),
        places=torch.arange(T, dtype=torch.int32, device=k.device),
        stores=torch.zeros(1, 2, dtype=torch.long, device=k.device),
    )  # fmt: skip
    return out
