"""Long views in segments that run side by side: kernels that `triton` launches instead of `_walk`.

Over whole chunks a state moves by an affine map, S <- M S + B, whatever it was:

    carry    a segment but a view's last, v-head, slice:  B, which zero becomes (of a view's first segment, what its own
             state becomes), and, but of the first, M, by the same steps from the unit vectors without values
    walk     a segment, v-head, slice:  S from those before it, joined in their order; then as a whole view's walk

Three launches with `prepare`. M S + B is taken in three products of half-precision parts, exact to 22 bits: a state
rounded once a segment would be off by more than all its products are. States lie turned, as walks hold them.

Work beyond a whole walk's: of n segments, 2n - 3 carries of half a segment's work (no outputs). At 1 x 8192 and 16
heads a walk of 128 dependent steps on 32 of 132 multiprocessors becomes 32 + 32 on all of them.
"""

import triton
import triton.language as tl

from mainspring.ops.gated_delta.segments import SEGMENT as SEGMENT_COLUMNS
from mainspring.ops.gated_delta.triton_chunk import CHUNK

SEGMENT = tl.constexpr(SEGMENT_COLUMNS)


@triton.jit
def _turned(address, offset, h, e, D: tl.constexpr, DV: tl.constexpr):
    """Pointers [len(e), D] into a state [Hv, D, DV] fp32, turned."""
    base = (address + offset).to(tl.pointer_type(tl.float32))
    return base + h * (D * DV) + tl.arange(0, D)[None, :] * DV + e[:, None]


@triton.jit(do_not_specialize=["layer"])
def _carry(
    k, v, T, C, segments, sources, layer, ends, moves,
    HK: tl.constexpr, HV: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """ends [G, Hv, DV, D] fp32 and moves [G, 2, Hv, D, D]: M's high and low halves, turned. A view's state before the
    pass goes where its last segment's end would: a walk may write the state itself while another has yet to read it."""
    part, h, n = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    of = segments + n * SEGMENT
    first, length, chunk = tl.load(of), tl.load(of + 1), tl.load(of + 2)
    view, before, after = tl.load(of + 3), tl.load(of + 4), tl.load(of + 5)
    values = part < DV // BV
    if (after == 0) | ((before == 0) & (part >= DV // BV)):
        return
    KIND: tl.constexpr = k.dtype.element_ty
    i, d = tl.arange(0, CHUNK), tl.arange(0, D)
    e = (part % (DV // BV)) * BV + tl.arange(0, BV)
    S = tl.where((e[:, None] == d[None, :]) & (part >= DV // BV), 1.0, 0.0)
    at_end = e[:, None] * D + d[None, :]
    if before == 0:
        source = tl.load(sources + 2 * view)
        if source != 0:
            S = tl.load(_turned(source, layer * tl.load(sources + 2 * view + 1), h, e, D, DV))
            tl.store(ends + ((n + after) * HV + h).to(tl.int64) * (DV * D) + at_end, S)
    valued = tl.where(values, length, 0)
    kh = h // (HV // HK)
    for start in range(0, length, CHUNK):
        row = (first + start + i).to(tl.int64)
        place = (chunk * HV + h).to(tl.int64) * CHUNK
        c = tl.load(C + place + i)
        last = tl.load(C + place + CHUNK - 1)
        K = tl.load(k + (row * HK + kh)[:, None] * D + d[None, :])
        of_v = (row * HV + h)[:, None] * DV + e[None, :]
        V = tl.load(v + of_v, mask=(start + i < valued)[:, None], other=0.0)
        solve = tl.load(T + (place + i)[:, None] * CHUNK + i[None, :])
        new = tl.dot(tl.trans(V.to(KIND)), tl.trans(solve), input_precision=EXACT)
        known = tl.dot(S.to(KIND), tl.trans(K), input_precision=EXACT) * -tl.exp(c)[None, :]
        new = tl.dot(known.to(KIND), tl.trans(solve), new, input_precision=EXACT)
        left = (new * tl.exp(last - c)[None, :]).to(KIND)
        S = tl.dot(left, K, S * tl.exp(last), input_precision=EXACT)
        chunk += 1
    if values:
        tl.store(ends + (n * HV + h).to(tl.int64) * (DV * D) + at_end, S)
    else:
        high = S.to(KIND)
        at_move = moves + (2 * n * HV + h).to(tl.int64) * (D * D) + at_end
        tl.store(at_move, high)
        tl.store(at_move + HV * D * D, (S - high.to(tl.float32)).to(KIND))


@triton.jit(do_not_specialize=["layer"])
def _walk_segment(
    q, k, v, T, P, C, segments, ends, moves, sources, targets, layer, o,
    HK: tl.constexpr, HV: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    part, h, n = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    of = segments + n * SEGMENT
    first, length, chunk = tl.load(of), tl.load(of + 1), tl.load(of + 2)
    view, before, after = tl.load(of + 3), tl.load(of + 4), tl.load(of + 5)
    if length == 0:
        return
    KIND: tl.constexpr = k.dtype.element_ty
    i, d, e = tl.arange(0, CHUNK), tl.arange(0, D), part * BV + tl.arange(0, BV)
    S = tl.zeros((BV, D), tl.float32)
    at_end = ends + h * (DV * D) + e[:, None] * D + d[None, :]
    source = tl.load(sources + 2 * view)
    if before > 0:
        S = tl.load(at_end + (n - before).to(tl.int64) * (HV * DV * D))
    elif source != 0:
        if after > 0:
            S = tl.load(at_end + (n + after).to(tl.int64) * (HV * DV * D))
        else:
            S = tl.load(_turned(source, layer * tl.load(sources + 2 * view + 1), h, e, D, DV))
    other = (n - before + 1).to(tl.int64)
    at_move = moves + (2 * other * HV + h) * (D * D) + d[:, None] * D + d[None, :]
    at_end += other * (HV * DV * D)
    for _ in tl.range(1, before, num_stages=2):
        move = tl.load(at_move)
        high = S.to(KIND)
        low = (S - high.to(tl.float32)).to(KIND)
        S = tl.load(at_end)
        S = tl.dot(high, move, S, input_precision=EXACT)
        S = tl.dot(low, move, S, input_precision=EXACT)
        S = tl.dot(high, tl.load(at_move + HV * D * D), S, input_precision=EXACT)
        at_move += 2 * HV * D * D
        at_end += HV * DV * D
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
    target = tl.load(targets + 2 * view)
    if (target != 0) & (after == 0):
        tl.store(_turned(target, layer * tl.load(targets + 2 * view + 1), h, e, D, DV), S)
