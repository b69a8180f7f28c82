"""Chunks of 64 rows on tensor cores: two launches for views, one for branches; fp32 states.

With c = cumsum(g) inside a chunk, D_ij = exp(c_i - c_j) for i >= j and T = (I + strict_tril(diag(beta) K K^T * D))^-1:

    prepare  a chunk and v-head a program:  U = T diag(beta) V;  W = T diag(beta e^c) K;  P = tril(Q K^T * D)
    walk     a view, v-head, slice of dv:   V' = U - W S;  o = e^c (Q S) + P V'
                                            S <- e^{c_last} S + K^T (e^{c_last - c} V')
    fork     a branch and v-head:           all of it in registers, from the parent's state, which is only read

The state stays in registers for a whole view: no chunk's state goes through memory. Slices of dv are independent, so
how many there are changes the schedule, not the numbers, and nothing depends on what else is in the pass. What happens
inside a chunk is in `triton_chunk`.

Roofline a chunk and v-head of d = 128, bf16: prepare reads 48 KB and writes 40, walk reads 72 and writes 16; 13 MFLOP.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mainspring.ops import ragged
from mainspring.ops.gated_delta.triton_chunk import CHUNK, keys, seen, solved
from mainspring.ops.ragged import CHUNK_ROWS

SIZES = (16, 32, 64, 128)


@triton.jit
def _prepare(
    q, k, v, beta, g, chunks, W, U, P, C,
    HK: tl.constexpr, HV: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    chunk, h = tl.program_id(0), tl.program_id(1)
    first, count = tl.load(chunks + 2 * chunk), tl.load(chunks + 2 * chunk + 1)
    if count == 0:
        return
    i, d, e = tl.arange(0, CHUNK), tl.arange(0, D), tl.arange(0, DV)
    live = i < count
    of_v = ((first + i).to(tl.int64) * HV + h)[:, None]
    b, c, T = solved(k, beta, g, first, count, h, HK, HV, D, EXACT)
    tl.store(C + (first + i).to(tl.int64) * HV + h, c, mask=live)
    V = tl.load(v + of_v * DV + e[None, :], mask=live[:, None], other=0.0)
    u = tl.dot(T, V.to(tl.float32) * b[:, None], input_precision=EXACT)
    tl.store(U + of_v * DV + e[None, :], u.to(U.dtype.element_ty), mask=live[:, None])
    K = keys(k, first, count, h, HK, HV, D)
    w = tl.dot(T, K.to(tl.float32) * (b * tl.exp(c))[:, None], input_precision=EXACT)
    tl.store(W + of_v * D + d[None, :], w.to(W.dtype.element_ty), mask=live[:, None])
    inner = seen(keys(q, first, count, h, HK, HV, D), K, c, EXACT)
    at = ((chunk * HV + h).to(tl.int64) * CHUNK + i)[:, None] * CHUNK + i[None, :]
    tl.store(P + at, inner.to(P.dtype.element_ty))


@triton.jit
def _state_at(address, offset, h, e, D: tl.constexpr, DV: tl.constexpr):
    """Pointers [D, len(e)] into a state [Hv, D, DV] fp32."""
    base = (address + offset).to(tl.pointer_type(tl.float32))
    return base + h * (D * DV) + tl.arange(0, D)[:, None] * DV + e[None, :]


@triton.jit(do_not_specialize=["layer"])
def _walk(
    q, k, W, U, P, C, spans, sources, targets, layer, o,
    HK: tl.constexpr, HV: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    part, h, n = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first, length, chunk = tl.load(spans + 3 * n), tl.load(spans + 3 * n + 1), tl.load(spans + 3 * n + 2)
    if length == 0:
        return
    i, d, e = tl.arange(0, CHUNK), tl.arange(0, D), part * BV + tl.arange(0, BV)
    S = tl.zeros((D, BV), tl.float32)
    source = tl.load(sources + 2 * n)
    if source != 0:
        S = tl.load(_state_at(source, layer * tl.load(sources + 2 * n + 1), h, e, D, DV))
    kh = h // (HV // HK)
    for start in range(0, length, CHUNK):
        live = start + i < length
        row = (first + start + i).to(tl.int64)
        c = tl.load(C + row * HV + h, mask=live, other=0.0)
        last = tl.load(C + (first + tl.minimum(start + CHUNK, length) - 1).to(tl.int64) * HV + h)
        of_k = (row * HK + kh)[:, None] * D + d[None, :]
        of_v = (row * HV + h)[:, None] * DV + e[None, :]
        w = tl.load(W + (row * HV + h)[:, None] * D + d[None, :], mask=live[:, None], other=0.0)
        u = tl.load(U + of_v, mask=live[:, None], other=0.0)
        Q = tl.load(q + of_k, mask=live[:, None], other=0.0)
        K = tl.load(k + of_k, mask=live[:, None], other=0.0)
        at = ((chunk * HV + h).to(tl.int64) * CHUNK + i)[:, None] * CHUNK + i[None, :]
        inner = tl.load(P + at)
        state = S.to(w.dtype)
        new = u.to(tl.float32) - tl.dot(w, state, input_precision=EXACT)
        out = tl.dot(Q, state, input_precision=EXACT) * tl.exp(c)[:, None]
        out += tl.dot(inner, new.to(w.dtype), input_precision=EXACT)
        tl.store(o + of_v, out.to(o.dtype.element_ty), mask=live[:, None])
        left = (new * tl.exp(last - c)[:, None]).to(w.dtype)
        S = S * tl.exp(last) + tl.dot(tl.trans(K), left, input_precision=EXACT)
        chunk += 1
    target = tl.load(targets + 2 * n)
    if target != 0:
        tl.store(_state_at(target, layer * tl.load(targets + 2 * n + 1), h, e, D, DV), S)


@triton.jit(do_not_specialize=["layer"])
def _fork(
    q, k, v, beta, g, spans, parents, states, layer, o,
    HK: tl.constexpr, HV: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr,
    LONG: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    n, h, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first, length = tl.load(spans + 2 * n), tl.load(spans + 2 * n + 1)
    if length == 0:
        return
    i, e = tl.arange(0, CHUNK), part * BV + tl.arange(0, BV)
    S = tl.zeros((D, BV), tl.float32)
    parent = tl.load(parents + n)
    if parent >= 0:
        source = tl.load(states + 2 * parent)
        if source != 0:
            S = tl.load(_state_at(source, layer * tl.load(states + 2 * parent + 1), h, e, D, DV))
    for start in range(0, length if LONG else 1, CHUNK):
        count = tl.minimum(length - start, CHUNK)
        live = i < count
        b, c, T = solved(k, beta, g, first + start, count, h, HK, HV, D, EXACT)
        K = keys(k, first + start, count, h, HK, HV, D)
        of_v = ((first + start + i).to(tl.int64) * HV + h)[:, None] * DV + e[None, :]
        V = tl.load(v + of_v, mask=live[:, None], other=0.0).to(tl.float32)
        state = S.to(K.dtype)
        known = tl.dot(K, state, input_precision=EXACT) * tl.exp(c)[:, None]
        new = tl.dot(T, (V - known) * b[:, None], input_precision=EXACT)
        Q = keys(q, first + start, count, h, HK, HV, D)
        inner = seen(Q, K, c, EXACT)
        out = tl.dot(Q, state, input_precision=EXACT) * tl.exp(c)[:, None]
        out += tl.dot(inner.to(K.dtype), new.to(K.dtype), input_precision=EXACT)
        tl.store(o + of_v, out.to(o.dtype.element_ty), mask=live[:, None])
        if LONG:
            last = tl.sum(tl.where(i == count - 1, c, 0.0), 0)
            left = (new * tl.exp(last - c)[:, None]).to(K.dtype)
            S = S * tl.exp(last) + tl.dot(tl.trans(K), left, input_precision=EXACT)


PRECISION = {torch.float32: "tf32x3"}
"""Of fp32 products, by the type of q, k and v. With half-precision rows plain tf32 costs nothing measurable:
what is computed from them is stored in half precision, rounded four times as coarsely."""


class Launch(NamedTuple):
    """How the compiler lays a kernel out."""

    warps: int
    stages: int


PREPARE, WALK, FORK = Launch(4, 1), Launch(4, 3), Launch(4, 1)


def scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    g: Tensor,
    o: Tensor,
    *,
    chunks: Tensor,
    spans: Tensor,
    sources: Tensor,
    targets: Tensor,
    layer: int = 0,
    slices: int | None = None,
) -> None:
    """Views: writes o [T, Hv, dv] and final states. Two launches.

    chunks [C, 2] and spans [V, 3] (first row, rows, first chunk) int32; sources and targets [V, 2] int64: the address
    of a state [Hv, dk, dv] fp32 (0: none) and the bytes from one layer's to the next, `layer` of them further on. A
    source may be its own target. `slices` of dv a view; None: as many as fill the device.
    """
    Hk, dk = k.shape[1:]
    T, Hv, dv = v.shape
    exact = PRECISION.get(q.dtype, "tf32")
    W, U = k.new_empty(T, Hv, dk), v.new_empty(T, Hv, dv)
    P = k.new_empty(len(chunks), Hv, CHUNK_ROWS, CHUNK_ROWS)
    C = torch.empty_like(g)
    _prepare[(len(chunks), Hv)](
        q, k, v, beta, g, chunks, W, U, P, C,
        HK=Hk, HV=Hv, D=dk, DV=dv, EXACT=exact, num_warps=PREPARE.warps, num_stages=PREPARE.stages,
    )  # fmt: skip
    slices = slices or slices_of(len(spans) * Hv, dv)
    _walk[(slices, Hv, len(spans))](
        q, k, W, U, P, C, spans, sources, targets, layer, o,
        HK=Hk, HV=Hv, D=dk, DV=dv, BV=dv // slices, EXACT=exact, num_warps=WALK.warps, num_stages=WALK.stages,
    )  # fmt: skip


def fork(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    g: Tensor,
    o: Tensor,
    *,
    spans: Tensor,
    parents: Tensor,
    states: Tensor,
    layer: int = 0,
    long: bool = False,
) -> None:
    """Branches: writes o. One launch. spans [B, 2] (first row, rows), parents [B] int32 into `states` [V, 2] as in
    `scan` (a negative parent, or address 0, is the zero state). `long` where any has more than one chunk of rows."""
    Hk, dk = k.shape[1:]
    Hv, dv = v.shape[1:]
    exact = PRECISION.get(q.dtype, "tf32")
    BV = min(dv, 64) if long else dv
    _fork[(len(spans), Hv, dv // BV)](
        q, k, v, beta, g, spans, parents, states, layer, o,
        HK=Hk, HV=Hv, D=dk, DV=dv, BV=BV, LONG=long, EXACT=exact,
        num_warps=FORK.warps, num_stages=FORK.stages,
    )  # fmt: skip


def slices_of(heads: int, dv: int) -> int:
    """Into how many slices of dv a walk of so many heads, of all views together, is cut.

    Programs of a walk are few and long: cut dv until a device of 132 multiprocessors is full, but not below 32. A
    state wider than 64 does not fit a program's registers."""
    return max(dv // 64, min(dv // 32, triton.next_power_of_2(triton.cdiv(128, heads))), 1)


def gated_delta(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    g: Tensor,
    *,
    lengths: Sequence[int],
    parents: Sequence[int],
    initial: Sequence[Tensor] | Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor | None]:
    """As the reference; q, k and v of any float type, states fp32, dk and dv powers of two from 16 to 128."""
    device = v.device
    Hv, dk, dv = v.shape[1], k.shape[2], v.shape[2]
    if dk not in SIZES or dv not in SIZES:
        raise ValueError(f"head sizes {dk} and {dv}: known are {', '.join(map(str, SIZES))}")
    o = torch.empty_like(v)
    first = ragged.starts(lengths)[:-1]
    stored = [] if initial is None else [s.contiguous() for s in initial]

    def states(tensors: Sequence[Tensor | None]) -> Tensor:
        rows = [[0 if s is None else s.data_ptr(), 0] for s in tensors]
        return torch.tensor(rows, dtype=torch.long, device=device).view(-1, 2)

    def table(*columns: Sequence[int]) -> Tensor:
        return torch.tensor(list(zip(*columns, strict=True)), dtype=torch.int32, device=device)

    if not keep:
        fork(
            q, k, v, beta, g, o, spans=table(first.tolist(), lengths), states=states(stored),
            parents=torch.tensor([p if stored else -1 for p in parents], dtype=torch.int32, device=device),
            long=max(lengths, default=0) > CHUNK_ROWS,
        )  # fmt: skip
        return o, None
    finals = v.new_zeros(len(lengths), Hv, dk, dv, dtype=torch.float32)
    sources = [stored[p] if p >= 0 and stored else None for p in parents]
    for n, (length, source) in enumerate(zip(lengths, sources, strict=True)):
        if not length and source is not None:
            finals[n] = source
    chunks, first_chunk = ragged.chunk_table(lengths)
    scan(
        q, k, v, beta, g, o, chunks=torch.from_numpy(chunks).to(device),
        spans=table(first.tolist(), lengths, first_chunk[:-1].tolist()),
        sources=states(sources), targets=states(list(finals)),
    )  # fmt: skip
    return o, finals
