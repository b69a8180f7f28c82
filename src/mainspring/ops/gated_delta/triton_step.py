"""Rows of a round, one after another, for many slots in one launch: convolution, gates, recurrence; the state can go
back by not going forward.

A slot keeps one state and, of the last round's rows, what each did to it: k, u = beta (v - S^T k) and e^g. The next
round's kernel reads the state, applies the rows that were kept, writes it back, and takes its own rows from there in
registers: a state is read once and written once a round, nothing is copied, and rows that were rejected were never in
it. What is written is always made by the same two operations (`_moved`), whether the round had more rows or not, and a
row's own outputs go through them too; both are roundings of their own that no compiler may join (`ROUNDINGS`: left to
itself it joins other products with other sums in each shape of the kernel, seen on an H200). So the state after m kept
rows is, bit for bit, the one that rounds of those rows alone lead to. A round that is thrown away leaves the state
of before it (`kept` 0).

Arrays, slots S, layers L, block B rows: states [S, L, Hv, dk, dv] fp32; of two sides (a round reads one and writes the
other) window [S, L, 2, 3 + B, Ch], the convolution's inputs with the three before them, in the rows' type; and k
[S, L, 2, B, Hk, dk], u [S, L, 2, B, Hv, dv], decay [S, L, 2, B, Hv] fp32. `plan` [N, PLAN] int32: `ops.rounds`.

Floor a slot and layer: 8 Hv dk dv bytes. Operations: 6 dk dv a row and v-head, 2 a kept row.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mainspring.ops.delta_inputs import Heads
from mainspring.ops.rounds import PLAN as PLAN_WORDS

MEMORY = tl.constexpr(3)
PLAN = tl.constexpr(PLAN_WORDS)
SLICE, WARPS = 16, 1
"""Columns of a state a program, and its warps: of 16 pairs on one H200 the quickest for 32 lanes, and within a tenth of
it for one."""
ROUNDINGS = {"enable_fp_fusion": False}


class Memory(NamedTuple):
    """The arrays of all slots, see above."""

    states: Tensor
    window: Tensor
    k: Tensor
    u: Tensor
    decay: Tensor

    @classmethod
    def empty(
        cls, slots: int, layers: int, block: int, heads: Heads, dtype: torch.dtype, device: torch.device
    ) -> "Memory":
        Hk, Hv, d = heads
        kind = torch.float32
        return cls(
            torch.zeros(slots, layers, Hv, d, d, dtype=kind, device=device),
            torch.zeros(slots, layers, 2, MEMORY.value + block, heads.channels, dtype=dtype, device=device),
            torch.zeros(slots, layers, 2, block, Hk, d, dtype=kind, device=device),
            torch.zeros(slots, layers, 2, block, Hv, d, dtype=kind, device=device),
            torch.zeros(slots, layers, 2, block, Hv, dtype=kind, device=device),
        )


@triton.jit
def _moved(S, k, u):
    """S + k u^T, of a state that has decayed: one rounding."""
    return tl.fma(tl.broadcast_to(k[:, None], S.shape), tl.broadcast_to(u[None, :], S.shape), S)


@triton.jit
def _next(p, column, old, conv, conv_tap, conv_channel):
    """(y after convolution and SiLU, the input row) from the row at p and the three before it."""
    a, b, c = old
    u = tl.load(p + column)
    at = conv + column * conv_channel
    y = a * tl.load(at).to(tl.float32) + b * tl.load(at + conv_tap).to(tl.float32)
    y += c * tl.load(at + 2 * conv_tap).to(tl.float32) + u.to(tl.float32) * tl.load(at + 3 * conv_tap).to(tl.float32)
    return y * tl.sigmoid(y), u


@triton.jit
def _unit(x):
    return x * tl.rsqrt(tl.sum(x * x, 0) + 1e-6)


@triton.jit
def _three(window, CH: tl.constexpr):
    return (
        tl.load(window).to(tl.float32),
        tl.load(window + CH).to(tl.float32),
        tl.load(window + 2 * CH).to(tl.float32),
    )


@triton.jit
def _keep_three(to, three, CH: tl.constexpr):
    tl.store(to, three[0].to(to.dtype.element_ty))
    tl.store(to + CH, three[1].to(to.dtype.element_ty))
    tl.store(to + 2 * CH, three[2].to(to.dtype.element_ty))


@triton.jit(do_not_specialize=["layer"])
def _step(
    p, stride, conv, conv_channel, conv_tap, a_log, dt_bias, plan, states, window, ks, us, decays, layer, layers, o,
    HK: tl.constexpr, HV: tl.constexpr, D: tl.constexpr, BV: tl.constexpr, R: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    part, h, lane = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot, count = tl.load(plan + lane * PLAN), tl.load(plan + lane * PLAN + 1)
    d, e = tl.arange(0, D), part * BV + tl.arange(0, BV)
    for t in range(count, R):
        tl.store(o + ((lane * R + t).to(tl.int64) * HV + h) * D + e, tl.zeros((BV,), o.dtype.element_ty))
    if count == 0:
        return
    kept, side = tl.load(plan + lane * PLAN + 2), tl.load(plan + lane * PLAN + 3)
    RATIO: tl.constexpr = HV // HK
    CH: tl.constexpr = (2 * HK + HV) * D
    kh = h // RATIO
    shares = (h % RATIO == 0) & (part == 0)  # writes what v-heads and slices have in common
    place = slot.to(tl.int64) * layers + layer
    at_state = states + (place * HV + h) * (D * D) + d[:, None] * D + e[None, :]
    old, new = (place * 2 + side) * B, (place * 2 + 1 - side) * B
    S = tl.load(at_state)
    for t in range(kept):
        decay = tl.load(decays + (old + t) * HV + h)
        k = tl.load(ks + ((old + t) * HK + kh) * D + d)
        S = _moved(S * decay, k, tl.load(us + ((old + t) * HV + h) * D + e))
    if kept > 0:
        tl.store(at_state, S)
    of_q, of_k, of_v = kh * D + d, (HK + kh) * D + d, (2 * HK + h) * D + e
    was = window + ((place * 2 + side) * (MEMORY + B) + kept) * CH
    goes = window + (place * 2 + 1 - side) * (MEMORY + B) * CH
    q3, k3, v3 = _three(was + of_q, CH), _three(was + of_k, CH), _three(was + of_v, CH)
    _keep_three(goes + of_v, v3, CH)
    if shares:
        _keep_three(goes + of_q, q3, CH)
        _keep_three(goes + of_k, k3, CH)
    rate = tl.exp(tl.load(a_log + h).to(tl.float32))
    bias = tl.load(dt_bias + h).to(tl.float32)
    for t in range(count):
        row = p + (lane * R + t).to(tl.int64) * stride
        q, raw_q = _next(row, of_q, q3, conv, conv_tap, conv_channel)
        k, raw_k = _next(row, of_k, k3, conv, conv_tap, conv_channel)
        v, raw_v = _next(row, of_v, v3, conv, conv_tap, conv_channel)
        q3 = (q3[1], q3[2], raw_q.to(tl.float32))
        k3 = (k3[1], k3[2], raw_k.to(tl.float32))
        v3 = (v3[1], v3[2], raw_v.to(tl.float32))
        q, k = _unit(q) * D**-0.5, _unit(k)
        beta = tl.sigmoid(tl.load(row + CH + HV * D + h).to(tl.float32))
        a = tl.load(row + CH + HV * D + HV + h).to(tl.float32) + bias
        soft = tl.where(a > 20.0, a, tl.log(1.0 + tl.exp(tl.minimum(a, 20.0))))
        decay = tl.exp(-rate * soft)
        S = S * decay
        u = (v - tl.sum(S * k[:, None], 0)) * beta
        S = _moved(S, k, u)
        out = tl.sum(S * q[:, None], 0)
        tl.store(o + ((lane * R + t).to(tl.int64) * HV + h) * D + e, out.to(o.dtype.element_ty))
        tl.store(us + ((new + t) * HV + h) * D + e, u)
        line = goes + (MEMORY + t) * CH
        tl.store(line + of_v, raw_v)
        if part == 0:
            tl.store(decays + (new + t) * HV + h, decay)
        if shares:
            tl.store(ks + ((new + t) * HK + kh) * D + d, k)
            tl.store(line + of_q, raw_q)
            tl.store(line + of_k, raw_k)


def step(
    projected: Tensor, conv: Tensor, A_log: Tensor, dt_bias: Tensor, o: Tensor, *,
    heads: Heads, plan: Tensor, memory: Memory, layer: int = 0,
) -> None:  # fmt: skip
    """projected [N R, 2 Hk d + 2 Hv d + 2 Hv] (`ops.delta_inputs`), R rows a lane, of which the plan says how many are
    there; conv [Ch, 4] of any strides; writes o [N R, Hv d], zero for rows that are not there."""
    Hk, Hv, d = heads
    R, B = len(projected) // len(plan), memory.u.shape[3]
    if conv.shape[1] != MEMORY.value + 1 or R > B or len(projected) != R * len(plan):
        raise ValueError(f"{conv.shape[1]} taps, {len(projected)} rows of {len(plan)} lanes: 4 and at most {B} a lane")
    wide = min(SLICE, d)
    _step[(d // wide, Hv, len(plan))](
        projected, projected.stride(0), conv, conv.stride(0), conv.stride(1), A_log, dt_bias, plan, *memory,
        layer, memory.states.shape[1], o, HK=Hk, HV=Hv, D=d, BV=wide, R=R, B=B, num_warps=WARPS, num_stages=2,
        **ROUNDINGS,
    )  # fmt: skip
