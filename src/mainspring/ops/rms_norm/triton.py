"""A few rows a program, whole rows in registers: every value is read once."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["T"])
def _add_norm(
    h, y, weight, total, out, T, eps, N: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, ADD: tl.constexpr
):
    row, i = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE)
    mask = (row < T)[:, None] & (i < N)[None, :]
    at = row.to(tl.int64)[:, None] * N + i[None, :]
    x = tl.load(h + at, mask=mask, other=0.0)
    if ADD:
        x = (x.to(tl.float32) + tl.load(y + at, mask=mask, other=0.0).to(tl.float32)).to(x.dtype)
        tl.store(total + at, x, mask=mask)
    x = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 1) / N + eps)[:, None]
    w = 1.0 + tl.load(weight + i, mask=i < N, other=0.0).to(tl.float32)
    tl.store(out + at, (x * scale * w[None, :]).to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def _gated(o, z, stride, weight, out, rows, eps, H: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    """Heads of all rows one after another, BLOCK of them a program."""
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = (n < rows)[:, None]
    d = tl.arange(0, D)[None, :]
    at = n.to(tl.int64)[:, None] * D + d
    x = tl.load(o + at, mask=live, other=0.0).to(tl.float32)
    of_z = (n // H).to(tl.int64)[:, None] * stride + (n % H)[:, None] * D + d
    gate = tl.load(z + of_z, mask=live, other=0.0).to(tl.float32)
    x = x * tl.rsqrt(tl.sum(x * x, 1) / D + eps)[:, None] * tl.load(weight + d).to(tl.float32)
    tl.store(out + at, (x * gate * tl.sigmoid(gate)).to(out.dtype.element_ty), mask=live)


def add_rms_norm(h: Tensor, y: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The sum is written over `y`."""
    T, N = h.shape
    out = torch.empty_like(h)
    total = h if y is None else y
    wide = triton.next_power_of_2(N)
    rows = max(1, 4096 // wide)  # a row a warp where it fits: its sum needs no other warp
    if T:
        _add_norm[(triton.cdiv(T, rows),)](
            h, total, weight, total, out, T, eps, N=N, WIDE=wide, ROWS=rows, ADD=y is not None, num_warps=4
        )
    return total, out


def gated_rms_norm(o: Tensor, z: Tensor, weight: Tensor, eps: float) -> Tensor:
    T, H, D = o.shape
    out = z.new_empty(T, H * D)
    block = max(1, 4096 // D)
    if T:
        _gated[(triton.cdiv(T * H, block),)](
            o, z, z.stride(0), weight, out, T * H, eps, H=H, D=D, BLOCK=block, num_warps=4
        )
    return out
