"""A few rows a program, whole rows in registers: every value is read once."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _add_norm(h, y, weight, total, out, eps, N: tl.constexpr, WIDE: tl.constexpr, ADD: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, WIDE)
    mask = i < N
    x = tl.load(h + row * N + i, mask=mask, other=0.0)
    if ADD:
        x = (x.to(tl.float32) + tl.load(y + row * N + i, mask=mask, other=0.0).to(tl.float32)).to(x.dtype)
        tl.store(total + row * N + i, x, mask=mask)
    x = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / N + eps)
    w = 1.0 + tl.load(weight + i, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row * N + i, (x * scale * w).to(out.dtype.element_ty), mask=mask)


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
    if T:
        _add_norm[(T,)](
            h, total, weight, total, out, eps, N=N, WIDE=wide, ADD=y is not None, num_warps=4 if wide <= 4096 else 8
        )
    return total, out


def gated_rms_norm(o: Tensor, z: Tensor, weight: Tensor, eps: float) -> Tensor:
    T, H, D = o.shape
    out = o.new_empty(T, H * D)
    block = max(1, 4096 // D)
    if T:
        _gated[(triton.cdiv(T * H, block),)](
            o, z, z.stride(0), weight, out, T * H, eps, H=H, D=D, BLOCK=block, num_warps=4
        )
    return out
