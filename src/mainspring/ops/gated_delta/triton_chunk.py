"""What is computed inside one chunk of 64 rows, whatever came before it: device functions of `triton`.

T = (I + A)^-1 by the block formula: X holds the inverses of all diagonal blocks of 2^level rows, L what A has beneath
the upper block of each pair, and X <- X - X L X those of twice as many rows. Every term is a product of inverses found
before, so nothing is lost on repeated keys, where a series in A loses all digits; ten small matrix products instead of
the dozens of dependent steps of a substitution.

Factors of products are in the keys' type. Half precision means fp16: with unit keys and 0 < beta < 1 no entry of A, T
or P exceeds one, so its eleven bits serve where bf16 has eight, and registers feed the tensor cores as they are.
"""

import triton
import triton.language as tl

from mainspring.ops.ragged import CHUNK_ROWS

CHUNK = tl.constexpr(CHUNK_ROWS)
LEVELS = tl.constexpr(CHUNK_ROWS.bit_length() - 1)


@triton.jit
def inverse(A, KIND: tl.constexpr, EXACT: tl.constexpr):
    """(I + A)^-1 of A [64, 64] fp32, strictly lower triangular."""
    t = tl.arange(0, CHUNK)
    i, j = t[:, None], t[None, :]
    X = tl.where(i == j, 1.0, 0.0) - tl.where(i // 2 == j // 2, A, 0.0)
    for level in tl.static_range(1, LEVELS):
        row, col = i // 2**level, j // 2**level
        L = tl.where((row == col + 1) & (row % 2 == 1), A, 0.0).to(KIND)
        factor = X.to(KIND)
        X -= tl.dot(factor, tl.dot(L, factor, input_precision=EXACT).to(KIND), input_precision=EXACT)
    return X


@triton.jit
def keys(x, first, count, h, HK: tl.constexpr, HV: tl.constexpr, D: tl.constexpr):
    """A chunk's rows of q or k [64, D] for v-head h; zero past its end."""
    i, d = tl.arange(0, CHUNK), tl.arange(0, D)
    at = ((first + i).to(tl.int64) * HK + h // (HV // HK))[:, None] * D + d[None, :]
    return tl.load(x + at, mask=(i < count)[:, None], other=0.0)


@triton.jit
def gates(beta, g, first, count, h, HV: tl.constexpr):
    """(beta, c [64]) of a chunk and v-head; rows past its end have beta 0 and the last c."""
    i = tl.arange(0, CHUNK)
    live = i < count
    at = (first + i).to(tl.int64) * HV + h
    return tl.load(beta + at, mask=live, other=0.0), tl.cumsum(tl.load(g + at, mask=live, other=0.0), 0)


@triton.jit
def within(Q, K, b, c, EXACT: tl.constexpr):
    """(A, P) [64, 64] fp32: how much of row j's new value row i takes back, and how much it reads."""
    i = tl.arange(0, CHUNK)
    lower = i[:, None] >= i[None, :]
    decay = tl.where(lower, tl.exp(tl.where(lower, c[:, None] - c[None, :], 0.0)), 0.0)
    P = tl.dot(Q, tl.trans(K), input_precision=EXACT) * decay
    A = tl.dot(K, tl.trans(K), input_precision=EXACT) * decay * b[:, None]
    return tl.where(i[:, None] > i[None, :], A, 0.0), P
