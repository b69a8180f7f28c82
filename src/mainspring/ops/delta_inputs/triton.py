"""One launch: convolution, SiLU, norms, gates and the views' last rows.

A program walks down a stretch of rows with a few heads' channels, the three rows before in registers, so that each
value is fetched once; four rows are on their way while four are worked on. Where a row's predecessors are not the rows
above it (a sequence begins), they are fetched by code (`ragged`): so views, continued views and branches that go on
from their view take one path. How long a stretch is changes the schedule, not the numbers.

q, k and v of a half-precision projection are fp16: unit vectors and what SiLU leaves need its digits, not the range of
bf16. A value beyond fp16's largest is cut to it.
"""

import math
from collections.abc import Iterable, Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from mainspring.ops import ragged
from mainspring.ops.delta_inputs import Heads

WIDTH = 4
"""Taps of the convolution: three rows are held."""
MOST_ROWS, LEAST_ROWS = 64, 8
PROGRAMS = 2048
"""About so many fill a device of 132 multiprocessors some times over."""
MEMORY = tl.constexpr(WIDTH - 1)
LARGEST = tl.constexpr(65504.0)
GATE_ROWS = tl.constexpr(8)


@triton.jit
def _fetch(p, stride, code, history, offset, column, CH: tl.constexpr):
    """[heads, d] fp32: the input row that `code` names, at `column`."""
    x = tl.zeros(column.shape, tl.float32)
    if code >= 0:
        x = tl.load(p + code.to(tl.int64) * stride + column).to(tl.float32)
    elif code < -1:
        number = -2 - code
        address = tl.load(history + number // MEMORY) + offset
        base = address.to(tl.pointer_type(p.dtype.element_ty))
        x = tl.load(base + number % MEMORY * CH + column).to(tl.float32)
    return x


@triton.jit
def _ahead(p, stride, row, end, column):
    """Four rows from `row` on, as they are; zero past the end."""
    at, line = p + row * stride + column, tl.zeros(column.shape, tl.int64) + row
    return (
        tl.load(at, mask=line < end, other=0.0),
        tl.load(at + stride, mask=line + 1 < end, other=0.0),
        tl.load(at + 2 * stride, mask=line + 2 < end, other=0.0),
        tl.load(at + 3 * stride, mask=line + 3 < end, other=0.0),
    )


@triton.jit
def _before(p, stride, taps, row, listed, oldest, a, b, c, history, offset, column, CH: tl.constexpr):
    """The rows before `row`, oldest first: those held, unless its sequence began less than three rows ago. Its codes
    are at `listed`; past the end, where nothing is stored, those of the last row."""
    if oldest != row - MEMORY:
        a = _fetch(p, stride, oldest, history, offset, column, CH)
        b = _fetch(p, stride, tl.load(taps + listed * MEMORY + 1), history, offset, column, CH)
        c = _fetch(p, stride, tl.load(taps + listed * MEMORY + 2), history, offset, column, CH)
    return a, b, c


@triton.jit
def _emit(out, out_stride, row, end, a, b, c, u, w0, w1, w2, w3, at, scale, normed):
    y = a * w0 + b * w1 + c * w2 + u * w3
    y = y * tl.sigmoid(y)
    factor = tl.where(normed, tl.rsqrt(tl.sum(y * y, 1) + 1e-6) * scale, 1.0)
    y *= factor[:, None]
    if out.dtype.element_ty == tl.float16:
        y = tl.minimum(tl.maximum(y, -LARGEST), LARGEST)
    tl.store(
        out + row * out_stride + at,
        y.to(out.dtype.element_ty),
        mask=tl.zeros(at.shape, tl.int64) + row < end,
    )


@triton.jit
def _gates(p, stride, a_log, dt_bias, beta, g, first, end, CH: tl.constexpr, HV: tl.constexpr, D: tl.constexpr,
           HV_PAD: tl.constexpr):  # fmt: skip
    h = tl.arange(0, HV_PAD)
    rate = tl.exp(tl.load(a_log + h, mask=h < HV, other=0.0).to(tl.float32))
    bias = tl.load(dt_bias + h, mask=h < HV, other=0.0).to(tl.float32)
    for start in range(first, end, GATE_ROWS):
        rows = (start + tl.arange(0, GATE_ROWS)).to(tl.int64)
        mask = (rows < end)[:, None] & (h < HV)[None, :]
        at = p + rows[:, None] * stride + CH + HV * D + h[None, :]
        b = tl.load(at, mask=mask, other=0.0).to(tl.float32)
        a = tl.load(at + HV, mask=mask, other=0.0).to(tl.float32) + bias[None, :]
        soft = tl.where(a > 20.0, a, tl.log(1.0 + tl.exp(tl.minimum(a, 20.0))))
        to = rows[:, None] * HV + h[None, :]
        tl.store(beta + to, tl.sigmoid(b), mask=mask)
        tl.store(g + to, -rate[None, :] * soft, mask=mask)


@triton.jit(do_not_specialize=["T", "stretch", "stretches", "offset"])
def _delta_inputs(
    p, stride, taps, weight, of_channel, of_tap, a_log, dt_bias, history, tails, tail_to, offset, q, k, v, beta, g,
    T, stretch, stretches,
    HK: tl.constexpr, HV: tl.constexpr, HV_PAD: tl.constexpr, D: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    CH: tl.constexpr = (2 * HK + HV) * D
    part, head = tl.program_id(0), tl.program_id(1) * H
    first = part * stretch
    end = tl.minimum(first + stretch, T)
    if head >= 2 * HK + HV:
        if part < stretches:
            _gates(p, stride, a_log, dt_bias, beta, g, first, end, CH, HV, D, HV_PAD)
        return
    at = tl.arange(0, H)[:, None] * D + tl.arange(0, D)[None, :]
    column = head * D + at
    if part >= stretches:  # the last rows of one view, kept for what goes on from it
        view = part - stretches
        address = tl.load(tail_to + view)
        if address != 0:
            to = (address + offset).to(tl.pointer_type(p.dtype.element_ty))
            for j in tl.static_range(MEMORY):
                x = _fetch(p, stride, tl.load(tails + view * MEMORY + j), history, offset, column, CH)
                tl.store(to + j * CH + column, x.to(p.dtype.element_ty))
        return
    out, out_stride, scale = q + head * D, HK * D, D**-0.5
    if head >= HK:
        out, scale = k + (head - HK) * D, 1.0
    if head >= 2 * HK:
        out, out_stride = v + (head - 2 * HK) * D, HV * D
    normed = head < 2 * HK
    begin = tl.zeros((), tl.int64) + first
    oldest = tl.load(taps + begin * MEMORY)
    n0, n1, n2, n3 = _ahead(p, stride, begin, end, column)
    of_weight = weight + column * of_channel
    w0 = tl.load(of_weight).to(tl.float32)
    w1 = tl.load(of_weight + of_tap).to(tl.float32)
    w2 = tl.load(of_weight + 2 * of_tap).to(tl.float32)
    w3 = tl.load(of_weight + 3 * of_tap).to(tl.float32)
    a, b, c = tl.zeros(at.shape, tl.float32), tl.zeros(at.shape, tl.float32), tl.zeros(at.shape, tl.float32)
    if oldest == begin - MEMORY:  # else its codes say so when the first row is worked on
        above = p + (begin - MEMORY) * stride + column
        a = tl.load(above).to(tl.float32)
        b = tl.load(above + stride).to(tl.float32)
        c = tl.load(above + 2 * stride).to(tl.float32)
    for near in range(first, end, 4):
        row = tl.zeros((), tl.int64) + near
        u0, u1, u2, u3 = n0.to(tl.float32), n1.to(tl.float32), n2.to(tl.float32), n3.to(tl.float32)
        n0, n1, n2, n3 = _ahead(p, stride, row + 4, end, column)
        l1, l2, l3 = tl.minimum(row + 1, end - 1), tl.minimum(row + 2, end - 1), tl.minimum(row + 3, end - 1)
        o0, o1 = tl.load(taps + row * MEMORY), tl.load(taps + l1 * MEMORY)
        o2, o3 = tl.load(taps + l2 * MEMORY), tl.load(taps + l3 * MEMORY)
        a, b, c = _before(p, stride, taps, row, row, o0, a, b, c, history, offset, column, CH)
        _emit(out, out_stride, row, end, a, b, c, u0, w0, w1, w2, w3, at, scale, normed)
        a, b, c = _before(p, stride, taps, row + 1, l1, o1, b, c, u0, history, offset, column, CH)
        _emit(out, out_stride, row + 1, end, a, b, c, u1, w0, w1, w2, w3, at, scale, normed)
        a, b, c = _before(p, stride, taps, row + 2, l2, o2, b, c, u1, history, offset, column, CH)
        _emit(out, out_stride, row + 2, end, a, b, c, u2, w0, w1, w2, w3, at, scale, normed)
        a, b, c = _before(p, stride, taps, row + 3, l3, o3, b, c, u2, history, offset, column, CH)
        _emit(out, out_stride, row + 3, end, a, b, c, u3, w0, w1, w2, w3, at, scale, normed)
        a, b, c = b, c, u3


def launch(
    projected: Tensor,
    weight: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    *,
    heads: Heads,
    taps: Tensor,
    tails: Tensor,
    history: Tensor,
    tail_to: Tensor,
    offset: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`taps` [T, 3] and `tails` [V, 3] int32 codes; `history` and `tail_to` [V] int64 addresses of [3, Ch] rows in the
    projection's type (0 in `tail_to`: not kept), `offset` in bytes is added to each. The weight may have any strides:
    with channels side by side it is read as it lies."""
    T = len(projected)
    Hk, Hv, d = heads
    if weight.shape[1] != WIDTH:
        raise ValueError(f"a convolution of {weight.shape[1]} taps: known is {WIDTH}")
    kind = torch.float32 if projected.dtype == torch.float32 else torch.float16
    q, k = projected.new_empty(2, T, Hk, d, dtype=kind)
    v = projected.new_empty(T, Hv, d, dtype=kind)
    beta, g = projected.new_empty(2, T, Hv, dtype=torch.float32)
    together = math.gcd(Hk, Hv, max(1, 1024 // d))  # heads a program: 1,024 channels, 16 bytes a thread, of one kind
    groups = (2 * Hk + Hv) // together
    stretch = max(LEAST_ROWS, min(MOST_ROWS, triton.next_power_of_2(triton.cdiv(T * groups, PROGRAMS))))
    stretches = triton.cdiv(T, stretch)
    _delta_inputs[(stretches + len(tails), groups + 1)](
        projected, projected.stride(0), taps, weight, *weight.stride(), A_log, dt_bias, history, tails, tail_to, offset,
        q, k, v, beta, g, T, stretch, stretches,
        HK=Hk, HV=Hv, HV_PAD=triton.next_power_of_2(Hv), D=d, H=together, num_warps=4,
    )  # fmt: skip
    return q, k, v, beta, g


def delta_inputs(
    projected: Tensor,
    weight: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    *,
    heads: Heads,
    lengths: Sequence[int],
    parents: Sequence[int],
    history: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    device, N, memory = projected.device, len(lengths), weight.shape[1] - 1
    before = ragged.fresh(N, memory)
    if history is not None:
        for n, parent in enumerate(parents):
            if parent >= 0:
                before[n] = ragged.history_codes(parent, memory)
    kept = projected.new_empty(N if keep else 0, memory, heads.channels)

    def addresses(rows: Iterable[Tensor]) -> Tensor:
        return torch.tensor([x.data_ptr() for x in rows], dtype=torch.long, device=device)

    outputs = launch(
        projected, weight, A_log, dt_bias, heads=heads,
        taps=torch.from_numpy(ragged.tap_table(lengths, before)).to(device),
        tails=torch.from_numpy(ragged.tail_table(lengths, before)[: len(kept)].copy()).to(device),
        history=addresses([] if history is None else history),
        tail_to=addresses(kept),
    )  # fmt: skip
    return (*outputs, kept if keep else None)
