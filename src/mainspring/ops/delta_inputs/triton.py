"""One launch: convolution, SiLU, norms, gates and the views' last rows, a block of rows and a head a program.

Every row names its K-1 predecessors by code (`ragged`), so views, continued views and branches that go on from rows of
their view take one path; the predecessors' rows come from the cache. Bound by bytes: each channel is read and written
once.
"""

from collections.abc import Iterable, Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from mainspring.ops import ragged
from mainspring.ops.delta_inputs import Heads

BLOCK_ROWS = 32


@triton.jit
def _row(p, stride, code, inherits, history, offset, column, K: tl.constexpr, CH: tl.constexpr):
    """[rows, d] fp32: the input rows that `code` [rows] names, at `column` [d]; `inherits`: some are of histories."""
    x = tl.load(p + code.to(tl.int64)[:, None] * stride + column[None, :], mask=(code >= 0)[:, None], other=0.0)
    x = x.to(tl.float32)
    if inherits:
        kept = code < -1
        number = -2 - code
        address = tl.load(history + number // (K - 1), mask=kept, other=0) + offset
        base = address.to(tl.pointer_type(p.dtype.element_ty))
        at = base[:, None] + (number % (K - 1) * CH)[:, None] + column[None, :]
        x += tl.load(at, mask=kept[:, None], other=0.0).to(tl.float32)
    return x


@triton.jit(do_not_specialize=["T", "row_blocks", "offset"])
def _kernel(
    p, stride, taps, weight, a_log, dt_bias, history, tails, tail_to, offset, q, k, v, beta, g, T, row_blocks,
    HK: tl.constexpr, HV: tl.constexpr, HV_PAD: tl.constexpr, D: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    block, head = tl.program_id(0), tl.program_id(1)
    CH: tl.constexpr = (2 * HK + HV) * D
    d = tl.arange(0, D)
    if block >= row_blocks:  # the last rows of one view, kept for what goes on from it
        view = block - row_blocks
        address = tl.load(tail_to + view)
        if (address != 0) & (head < 2 * HK + HV):
            to = (address + offset).to(tl.pointer_type(p.dtype.element_ty))
            for j in tl.static_range(K - 1):
                code = tl.load(tails + view * (K - 1) + j + tl.zeros([1], tl.int32))
                x = _row(p, stride, code, True, history, offset, head * D + d, K, CH)
                at = to + j * CH + head * D + d[None, :]
                tl.store(at, x.to(p.dtype.element_ty))
        return
    rows = block * ROWS + tl.arange(0, ROWS)
    live = rows < T
    wide = rows.to(tl.int64)
    if head == 2 * HK + HV:
        h = tl.arange(0, HV_PAD)
        mask = live[:, None] & (h < HV)[None, :]
        at = p + wide[:, None] * stride + CH + HV * D + h[None, :]
        b = tl.load(at, mask=mask, other=0.0).to(tl.float32)
        a = tl.load(at + HV, mask=mask, other=0.0).to(tl.float32)
        a += tl.load(dt_bias + h, mask=h < HV, other=0.0).to(tl.float32)[None, :]
        rate = tl.exp(tl.load(a_log + h, mask=h < HV, other=0.0).to(tl.float32))
        soft = tl.where(a > 20.0, a, tl.log(1.0 + tl.exp(tl.minimum(a, 20.0))))
        to = wide[:, None] * HV + h[None, :]
        tl.store(beta + to, tl.sigmoid(b), mask=mask)
        tl.store(g + to, -rate[None, :] * soft, mask=mask)
        return
    column = head * D + d
    own = tl.load(p + wide[:, None] * stride + column[None, :], mask=live[:, None], other=0.0).to(tl.float32)
    y = own * tl.load(weight + column * K + (K - 1)).to(tl.float32)[None, :]
    oldest = tl.load(taps + rows * (K - 1), mask=live, other=-1)  # if any tap is of a history, the oldest is
    inherits = tl.min(oldest, 0) < -1
    for j in tl.static_range(K - 1):
        code = tl.load(taps + rows * (K - 1) + j, mask=live, other=-1)
        x = _row(p, stride, code, inherits, history, offset, column, K, CH)
        y += x * tl.load(weight + column * K + j).to(tl.float32)[None, :]
    y = y * tl.sigmoid(y)
    if head < 2 * HK:
        y = y * tl.rsqrt(tl.sum(y * y, 1) + 1e-6)[:, None]
        if head < HK:
            tl.store(
                q + (wide * HK + head)[:, None] * D + d[None, :], (y * D**-0.5).to(q.dtype.element_ty), live[:, None]
            )
        else:
            at = (wide * HK + (head - HK))[:, None] * D + d[None, :]
            tl.store(k + at, y.to(k.dtype.element_ty), live[:, None])
    else:
        at = (wide * HV + (head - 2 * HK))[:, None] * D + d[None, :]
        tl.store(v + at, y.to(v.dtype.element_ty), live[:, None])


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
    """`taps` [T, K-1] and `tails` [V, K-1] int32 codes; `history` and `tail_to` [V] int64 addresses of [K-1, Ch] rows
    in the projection's type (0 in `tail_to`: not kept), `offset` in bytes is added to each."""
    T = len(projected)
    Hk, Hv, d = heads
    q, k = projected.new_empty(2, T, Hk, d)
    v = projected.new_empty(T, Hv, d)
    beta, g = projected.new_empty(2, T, Hv, dtype=torch.float32)
    blocks = triton.cdiv(T, BLOCK_ROWS)
    _kernel[(blocks + len(tails), 2 * Hk + Hv + 1)](
        projected, projected.stride(0), taps, weight, A_log, dt_bias, history, tails, tail_to, offset,
        q, k, v, beta, g, T, blocks,
        HK=Hk, HV=Hv, HV_PAD=triton.next_power_of_2(Hv), D=d, K=weight.shape[1], ROWS=BLOCK_ROWS, num_warps=4,
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
