"""Branches: kernels that start from a parent's state, write outputs and leave no state. Launched by `triton`."""

import triton
import triton.language as tl

from mainspring.ops.gated_delta.triton_chunk import CHUNK, gates, inverse, keys, within


@triton.jit
def _state_at(address, offset, h, e, D: tl.constexpr, DV: tl.constexpr):
    """Pointers [D, len(e)] into a state [Hv, D, DV] fp32."""
    base = (address + offset).to(tl.pointer_type(tl.float32))
    return base + h * (D * DV) + tl.arange(0, D)[:, None] * DV + e[None, :]


@triton.jit(do_not_specialize=["layer"])
def _fork(
    q, k, v, beta, g, spans, parents, states, layer, o,
    HK: tl.constexpr, HV: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """One chunk and no state after it: with M = P T diag(beta), o = M V + (diag(e^c) Q - M diag(e^c) K) S."""
    n, h = tl.program_id(0), tl.program_id(1)
    first, count = tl.load(spans + 2 * n), tl.load(spans + 2 * n + 1)
    if count == 0:
        return
    KIND: tl.constexpr = k.dtype.element_ty
    i = tl.arange(0, CHUNK)
    live = i < count
    parent = tl.load(parents + n)
    source = tl.load(states + 2 * parent, mask=parent >= 0, other=0)
    shift = layer * tl.load(states + 2 * parent + 1, mask=parent >= 0, other=0)
    K, Q = keys(k, first, count, h, HK, HV, D), keys(q, first, count, h, HK, HV, D)
    b, c = gates(beta, g, first, count, h, HV)
    A, inner = within(Q, K, b, c, EXACT)
    T = inverse(A, KIND, EXACT) * b[None, :]
    M = tl.dot(inner.to(KIND), T.to(KIND), input_precision=EXACT)
    grown = tl.exp(c)
    known = tl.dot((M * grown[None, :]).to(KIND), K, input_precision=EXACT)
    R = (Q.to(tl.float32) * grown[:, None] - known).to(KIND)
    for part in range(0, DV, BV):
        e = part + tl.arange(0, BV)
        of_v = ((first + i).to(tl.int64) * HV + h)[:, None] * DV + e[None, :]
        out = tl.dot(M.to(KIND), tl.load(v + of_v, mask=live[:, None], other=0.0).to(KIND), input_precision=EXACT)
        if source != 0:
            out += tl.dot(R, tl.load(_state_at(source, shift, h, e, D, DV)).to(KIND), input_precision=EXACT)
        tl.store(o + of_v, out.to(o.dtype.element_ty), mask=live[:, None])


@triton.jit(do_not_specialize=["layer"])
def _fork_long(
    q, k, v, beta, g, spans, parents, states, layer, o,
    HK: tl.constexpr, HV: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Several chunks: the state goes from one to the next in registers."""
    n, h, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first, length = tl.load(spans + 2 * n), tl.load(spans + 2 * n + 1)
    if length == 0:
        return
    KIND: tl.constexpr = k.dtype.element_ty
    i, e = tl.arange(0, CHUNK), part * BV + tl.arange(0, BV)
    S = tl.zeros((D, BV), tl.float32)
    parent = tl.load(parents + n)
    if parent >= 0:
        source = tl.load(states + 2 * parent)
        if source != 0:
            S = tl.load(_state_at(source, layer * tl.load(states + 2 * parent + 1), h, e, D, DV))
    for start in range(0, length, CHUNK):
        count = tl.minimum(length - start, CHUNK)
        live = i < count
        K = keys(k, first + start, count, h, HK, HV, D)
        b, c = gates(beta, g, first + start, count, h, HV)
        A, inner = within(keys(q, first + start, count, h, HK, HV, D), K, b, c, EXACT)
        T = inverse(A, KIND, EXACT) * b[None, :]
        of_v = ((first + start + i).to(tl.int64) * HV + h)[:, None] * DV + e[None, :]
        V = tl.load(v + of_v, mask=live[:, None], other=0.0).to(tl.float32)
        state = S.to(KIND)
        wanted = (V - tl.dot(K, state, input_precision=EXACT) * tl.exp(c)[:, None]).to(KIND)
        new = tl.dot(T.to(KIND), wanted, input_precision=EXACT)
        Q = keys(q, first + start, count, h, HK, HV, D)
        out = tl.dot(Q, state, input_precision=EXACT) * tl.exp(c)[:, None]
        out += tl.dot(inner.to(KIND), new.to(KIND), input_precision=EXACT)
        tl.store(o + of_v, out.to(o.dtype.element_ty), mask=live[:, None])
        last = tl.sum(tl.where(i == count - 1, c, 0.0), 0)
        left = (new * tl.exp(last - c)[:, None]).to(KIND)
        S = S * tl.exp(last) + tl.dot(tl.trans(K), left, input_precision=EXACT)
