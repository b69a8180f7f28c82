"""What is computed inside one chunk of 64 rows, whatever came before it: device functions of `triton`.

T = (I + A)^-1 by the block formula: X holds the inverses of all diagonal blocks of 2^level rows, L what A has beneath
the upper block of each pair, and X <- X - X L X those of twice as many rows. Every term is a product of inverses found
before, so nothing is lost on repeated keys, where a series in A loses all digits; ten small matrix products instead of
the dozens of dependent steps of a substitution.
"""

import triton
import triton.language as tl

from mainspring.ops.ragged import CHUNK_ROWS

CHUNK = tl.constexpr(CHUNK_ROWS)
LEVELS = tl.constexpr(CHUNK_ROWS.bit_length() - 1)


@triton.jit
def inverse(A, EXACT: tl.constexpr):
    """(I + A)^-1 of A [64, 64] fp32, strictly lower triangular."""
    t = tl.arange(0, CHUNK)
    i, j = t[:, None], t[None, :]
    X = tl.where(i == j, 1.0, 0.0) - tl.where(i // 2 == j // 2, A, 0.0)
    for level in tl.static_range(1, LEVELS):
        row, col = i // 2**level, j // 2**level
        L = tl.where((row == col + 1) & (row % 2 == 1), A, 0.0)
        X -= tl.dot(X, tl.dot(L, X, input_precision=EXACT), input_precision=EXACT)
    return X


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
