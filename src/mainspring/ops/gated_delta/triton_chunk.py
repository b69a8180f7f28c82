"""What is computed inside one chunk of 64 rows, whatever came before it: device functions of `triton`.

T = (I + A)^-1 is exact: 16-row blocks by substitution, then two levels of the block formula X <- X - X L X, whose terms
are products of inverses already found. A series in A would lose all digits on repeated keys.
"""

import triton
import triton.language as tl

from mainspring.ops.ragged import CHUNK_ROWS

CHUNK = tl.constexpr(CHUNK_ROWS)
BLOCK = tl.constexpr(16)


@triton.jit
def inverse(A, PRECISION: tl.constexpr):
    """(I + A)^-1 of A [64, 64] fp32, strictly lower triangular."""
    n: tl.constexpr = CHUNK // BLOCK
    i, b = tl.arange(0, BLOCK), tl.arange(0, n)
    same = (b[:, None] == b[None, :])[:, None, :, None]
    X = -tl.sum(tl.where(same, tl.reshape(A, (n, BLOCK, n, BLOCK)), 0.0), 2)
    for r in range(1, BLOCK):
        here = (i == r)[None, :, None]
        row = tl.sum(tl.where(here, X, 0.0), 1)
        row += tl.sum(row[:, :, None] * X, 1)
        X = tl.where(here, row[:, None, :], X)
    X += (i[:, None] == i[None, :])[None, :, :].to(tl.float32)
    full = tl.where(same, X[:, :, None, :], tl.zeros((n, BLOCK, n, BLOCK), tl.float32))
    full = tl.reshape(full, (CHUNK, CHUNK))
    t = tl.arange(0, CHUNK)
    for level in tl.static_range(2):
        row, col = t[:, None] // (BLOCK * 2**level), t[None, :] // (BLOCK * 2**level)
        L = tl.where((row == col + 1) & (row % 2 == 1), A, 0.0)
        full -= tl.dot(full, tl.dot(L, full, input_precision=PRECISION), input_precision=PRECISION)
    return full


@triton.jit
def keys(x, first, count, h, HK: tl.constexpr, HV: tl.constexpr, D: tl.constexpr):
    """A chunk's rows of q or k [64, D] for v-head h; zero past its end. Loaded again rather than held in registers."""
    i, d = tl.arange(0, CHUNK), tl.arange(0, D)
    at = ((first + i).to(tl.int64) * HK + h // (HV // HK))[:, None] * D + d[None, :]
    return tl.load(x + at, mask=(i < count)[:, None], other=0.0)


@triton.jit
def solved(k, beta, g, first, count, h, HK: tl.constexpr, HV: tl.constexpr, D: tl.constexpr, EXACT: tl.constexpr):
    """(beta, c [64], T [64, 64] fp32) of a chunk and v-head."""
    i = tl.arange(0, CHUNK)
    live = i < count
    at = (first + i).to(tl.int64) * HV + h
    b = tl.load(beta + at, mask=live, other=0.0)
    c = tl.cumsum(tl.load(g + at, mask=live, other=0.0), 0)
    below = i[:, None] > i[None, :]
    decay = tl.exp(tl.where(below, c[:, None] - c[None, :], 0.0))
    K = keys(k, first, count, h, HK, HV, D)
    A = tl.where(below, tl.dot(K, tl.trans(K), input_precision=EXACT) * decay * b[:, None], 0.0)
    return b, c, inverse(A, EXACT)


@triton.jit
def seen(Q, K, c, EXACT: tl.constexpr):
    """P [64, 64] fp32: how much of row j's new value row i reads within the chunk."""
    i = tl.arange(0, CHUNK)
    lower = i[:, None] >= i[None, :]
    decay = tl.exp(tl.where(lower, c[:, None] - c[None, :], 0.0))
    return tl.where(lower, tl.dot(Q, tl.trans(K), input_precision=EXACT) * decay, 0.0)
