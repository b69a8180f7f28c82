"""Chunks of 64 rows on tensor cores: two launches for views, one for branches; fp32 states.

With c = cumsum(g) inside a chunk, D_ij = exp(c_i - c_j) for i >= j and T = (I + strict_tril(diag(beta) K K^T * D))^-1:

    prepare  a chunk and v-head a program:  T diag(beta);  P = tril(Q K^T * D)
    walk     a view, v-head, slice of dv:   V' = T diag(beta) (V - e^c (K S));  o = e^c (Q S) + P V'
                                            S <- e^{c_last} S + K^T (e^{c_last - c} V')
    fork     a branch and v-head:           all of it in registers, from the parent's state, which is only read

A walk holds S^T in registers for a whole view, so that state and new values are left factors of every product, where
tensor cores take them from registers: nothing but what was loaded passes through shared memory, and no chunk's state
through memory. Slices of dv are independent, so how many there are changes the schedule, not the numbers, and nothing
depends on what else is in the pass. What happens inside a chunk is in `triton_chunk`, what a branch does in
`triton_fork`.

Roofline a chunk and v-head of d = 128, half precision: prepare reads 32 KB and writes 16, walk reads 64 and writes 16;
13 MFLOP. T V and T K, which others keep instead of T, would be 24 KB more to write and to read again.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from mainspring.ops import ragged
from mainspring.ops.gated_delta.triton_chunk import CHUNK, gates, inverse, keys, within
from mainspring.ops.gated_delta.triton_fork import _fork, _fork_long
from mainspring.ops.gated_delta.triton_segments import _carry, _walk_segment
from mainspring.ops.ragged import CHUNK_ROWS

SIZES = (16, 32, 64, 128)


@triton.jit
def _prepare(q, k, beta, g, chunks, T, P, C, HK: tl.constexpr, HV: tl.constexpr, D: tl.constexpr, EXACT: tl.constexpr):
    """Its outputs lie chunk by chunk: T diag(beta) and P [64, 64], c [64] of each v-head."""
    chunk, h = tl.program_id(0), tl.program_id(1)
    first, count = tl.load(chunks + 2 * chunk), tl.load(chunks + 2 * chunk + 1)
    if count == 0:
        return
    KIND: tl.constexpr = k.dtype.element_ty
    i = tl.arange(0, CHUNK)
    K, Q = keys(k, first, count, h, HK, HV, D), keys(q, first, count, h, HK, HV, D)
    b, c = gates(beta, g, first, count, h, HV)
    place = (chunk * HV + h).to(tl.int64) * CHUNK
    tl.store(C + place + i, c)
    at = (place + i)[:, None] * CHUNK + i[None, :]
    A, inner = within(Q, K, b, c, EXACT)
    tl.store(P + at, inner.to(KIND))
    tl.store(T + at, (inverse(A, KIND, EXACT) * b[None, :]).to(KIND))


@triton.jit
def _turned(address, offset, h, e, D: tl.constexpr, DV: tl.constexpr):
    """Pointers [len(e), D] into a state [Hv, D, DV] fp32, turned."""
    base = (address + offset).to(tl.pointer_type(tl.float32))
    return base + h * (D * DV) + tl.arange(0, D)[None, :] * DV + e[:, None]


@triton.jit(do_not_specialize=["layer"])
def _walk(
    q, k, v, T, P, C, spans, sources, targets, layer, o,
    HK: tl.constexpr, HV: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    part, h, n = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first, length, chunk = tl.load(spans + 3 * n), tl.load(spans + 3 * n + 1), tl.load(spans + 3 * n + 2)
    if length == 0:
        return
    KIND: tl.constexpr = k.dtype.element_ty
    i, d, e = tl.arange(0, CHUNK), tl.arange(0, D), part * BV + tl.arange(0, BV)
    S = tl.zeros((BV, D), tl.float32)
    source = tl.load(sources + 2 * n)
    if source != 0:
        S = tl.load(_turned(source, layer * tl.load(sources + 2 * n + 1), h, e, D, DV))
    kh = h // (HV // HK)
    for start in range(0, length, CHUNK):
        live = start + i < length
        row = (first + start + i).to(tl.int64)
        place = (chunk * HV + h).to(tl.int64) * CHUNK
        c = tl.load(C + place + i)
        last = tl.load(C + place + CHUNK - 1)
        of_k = (row * HK + kh)[:, None] * D + d[None, :]
        of_v = (row * HV + h)[:, None] * DV + e[None, :]
        K = tl.load(k + of_k, mask=live[:, None], other=0.0)
        V = tl.load(v + of_v, mask=live[:, None], other=0.0)
        solve = tl.load(T + (place + i)[:, None] * CHUNK + i[None, :])
        Q = tl.load(q + of_k, mask=live[:, None], other=0.0)
        inner = tl.load(P + (place + i)[:, None] * CHUNK + i[None, :])
        state, grown = S.to(KIND), tl.exp(c)[None, :]
        new = tl.dot(tl.trans(V.to(KIND)), tl.trans(solve), input_precision=EXACT)
        known = tl.dot(state, tl.trans(K), input_precision=EXACT) * -grown
        new = tl.dot(known.to(KIND), tl.trans(solve), new, input_precision=EXACT)
        out = tl.dot(state, tl.trans(Q), input_precision=EXACT) * grown
        out = tl.dot(new.to(KIND), tl.trans(inner), out, input_precision=EXACT)
        tl.store(o + tl.trans(of_v), out.to(o.dtype.element_ty), mask=live[None, :])
        left = (new * tl.exp(last - c)[None, :]).to(KIND)
        S = tl.dot(left, K, S * tl.exp(last), input_precision=EXACT)
        chunk += 1
    target = tl.load(targets + 2 * n)
    if target != 0:
        tl.store(_turned(target, layer * tl.load(targets + 2 * n + 1), h, e, D, DV), S)


EXACT = "tf32x3"
"""Of fp32 products, where q, k and v are fp32. Products of half-precision factors are exact."""


class Launch(NamedTuple):
    """How the compiler lays a kernel out."""

    warps: int
    stages: int
    registers: int | None = None


PREPARE, WALK, FORK = Launch(4, 1, 168), Launch(4, 3), Launch(4, 1)
WIDE_WALK = Launch(8, 3)
EXACT_WALK = Launch(4, 1)
"""Of fp32: a chunk takes twice the shared memory."""
SLICE, WIDE = 64, 128
"""Columns of a state that a walk's program holds: as few as a tensor core takes, so that programs are many, or, where
there are so many anyway that each multiprocessor has one, twice as many, so that a chunk is read once."""
WIDE_HEADS = 128
"""Heads, of all views together, from which walks are wide. A program's columns know nothing of each other, so the
numbers are the same."""


def _check(*halves: Tensor) -> None:
    if any(x.dtype not in (torch.float16, torch.float32) for x in halves):
        raise TypeError(f"queries and keys in {' and '.join(str(x.dtype) for x in halves)}: fp16 or fp32 is needed")


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
    segments: Tensor | None = None,
) -> None:
    """Views: writes o [T, Hv, dv] and final states. Two launches, three where views are cut.

    chunks [C, 2] and spans [V, 3] (first row, rows, first chunk) int32; sources and targets [V, 2] int64: the address
    of a state [Hv, dk, dv] fp32 (0: none) and the bytes from one layer's to the next, `layer` of them further on. A
    source may be its own target. `slices` of dv a view, None: by how many heads there are. `segments` [G, SEGMENT]
    int32 (`gated_delta.segments`) instead of `spans`: long views in parts that run side by side.
    """
    Hk, dk = k.shape[1:]
    Hv, dv = v.shape[1:]
    _check(q, k)
    places = len(chunks), Hv, CHUNK_ROWS
    solved, inner = k.new_empty(2, *places, CHUNK_ROWS)
    sums = g.new_empty(places)
    _prepare[places[:2]](
        q, k, beta, g, chunks, solved, inner, sums,
        HK=Hk, HV=Hv, D=dk, EXACT=EXACT,
        num_warps=PREPARE.warps, num_stages=PREPARE.stages, maxnreg=PREPARE.registers,
    )  # fmt: skip
    half = q.dtype != torch.float32
    walks = spans if segments is None else segments
    wide = half and dv >= WIDE and len(walks) * Hv >= WIDE_HEADS if slices is None else dv // slices >= WIDE
    slices = slices or max(dv // (WIDE if wide else SLICE), 1)
    launch = (WIDE_WALK if wide else WALK) if half else EXACT_WALK
    common = {
        "HK": Hk, "HV": Hv, "D": dk, "DV": dv, "BV": dv // slices, "EXACT": EXACT,
        "num_warps": launch.warps, "num_stages": launch.stages,
    }  # fmt: skip
    if segments is None:
        _walk[(slices, Hv, len(spans))](
            q, k, v, solved, inner, sums, spans, sources, targets, layer, o, **common
        )  # fmt: skip
        return
    ends, moves = g.new_empty(len(segments), Hv, dv, dk), k.new_empty(len(segments), 2, Hv, dk, dk)
    _carry[(slices + dk * slices // dv, Hv, len(segments))](
        k, v, solved, sums, segments, sources, layer, ends, moves, **common
    )  # fmt: skip
    _walk_segment[(slices, Hv, len(segments))](
        q, k, v, solved, inner, sums, segments, ends, moves, sources, targets, layer, o, **common
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
    _check(q, k)
    BV = min(dv, SLICE)
    kernel, grid = (_fork_long, (len(spans), Hv, dv // BV)) if long else (_fork, (len(spans), Hv))
    kernel[grid](
        q, k, v, beta, g, spans, parents, states, layer, o,
        HK=Hk, HV=Hv, D=dk, DV=dv, BV=BV, EXACT=EXACT, num_warps=FORK.warps, num_stages=FORK.stages,
    )  # fmt: skip


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
    """As the reference; q, k and v of any float type (bf16 goes by way of fp16, see `triton_chunk`), states fp32, dk
    and dv powers of two from 16 to 128."""
    q, k = (x.half() if x.dtype == torch.bfloat16 else x for x in (q, k))
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
