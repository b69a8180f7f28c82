"""Chunk-parallel form in plain torch: matrix products of 32 or 64 rows instead of as many dependent steps.

Within a chunk, with c = cumsum(g), D_ij = exp(c_i - c_j) for i >= j, A = strict_tril(diag(beta) K K^T * D) and
T = (I + A)^-1:

    U  = T diag(beta) V;   W = T diag(beta) (K e^c);   V' = U - W S
    o  = (Q e^c) S + tril(Q K^T * D) V';   S <- e^{c_last} S + (K e^{c_last - c})^T V'

so only V' and S depend on earlier chunks, three small products a chunk; the rest is batched over all. Sequences that
fork one parent and fit one chunk (branches) share the parent's state by reading it: their rows are stacked a head, and
no state is written. Every operation is differentiable; `_walk_in_place` runs only where no gradient is wanted.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from mainspring.ops.gated_delta import CHUNK_ROWS

# One sequence goes in chunks of 32 rows where heads are small (the products within a chunk then weigh as much as those
# with the state), 16 chunks at once, whose two dozen matrices stay in the cache.
SMALL_HEAD, SMALL_CHUNK_ROWS = 64, 32
BLOCK_ROWS = 512  # 256 to 1,024 are within 2 % of a prefill of each other

LOG2_E = math.log2(math.e)


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
    Hv, dk, dv = v.shape[1], k.shape[2], v.shape[2]
    starts = list(accumulate(lengths, initial=0))
    zero = v.new_zeros(Hv, dk, dv)
    pieces: list[tuple[int, Tensor]] = []
    finals: list[Tensor] = [zero] * len(lengths)

    def state(parent: int) -> Tensor:
        return zero if parent < 0 or initial is None else initial[parent]

    for n, (length, parent) in enumerate(zip(lengths, parents, strict=True)):
        if keep or length > CHUNK_ROWS:
            rows = slice(starts[n], starts[n] + length)
            out, finals[n] = _scan(q[rows], k[rows], v[rows], beta[rows], g[rows], state(parent))
            pieces.append((starts[n], out))
    if not keep:
        for parent, first, group in _short_groups(lengths, parents, starts):
            rows = slice(first, first + sum(group))
            out = _fork(q[rows], k[rows], v[rows], beta[rows], g[rows], group, state(parent))
            pieces.append((first, out))
    pieces.sort(key=lambda piece: piece[0])
    outs = [piece for _, piece in pieces]
    out = outs[0] if len(outs) == 1 else torch.cat([v.new_zeros(0, Hv, dv), *outs])
    return out, torch.stack(finals) if keep and finals else None


def _short_groups(
    lengths: Sequence[int], parents: Sequence[int], starts: Sequence[int]
) -> Iterator[tuple[int, int, list[int]]]:
    """Runs of neighbouring one-chunk sequences with one parent: (parent, first row, lengths)."""
    n = 0
    while n < len(lengths):
        end = n
        while end < len(lengths) and lengths[end] <= CHUNK_ROWS and parents[end] == parents[n]:
            end += 1
        if end > n:
            yield parents[n], starts[n], list(lengths[n:end])
        n = max(end, n + 1)


def _scan(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """One sequence from state S [Hv, dk, dv]: (o [T, Hv, dv], final state)."""
    outs = []
    for first in range(0, len(v), BLOCK_ROWS):
        rows = slice(first, first + BLOCK_ROWS)
        out, S = _scan_block(q[rows], k[rows], v[rows], beta[rows], g[rows], S)
        outs.append(out)
    return outs[0] if len(outs) == 1 else torch.cat(outs), S


def _scan_block(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """A few chunks at once: their two dozen matrices stay in the cache."""
    T = len(v)
    C = min(SMALL_CHUNK_ROWS if max(k.shape[2], v.shape[2]) <= SMALL_HEAD else CHUNK_ROWS, max(T, 1))
    n = -(-T // C)
    chunks = _Chunks(*(_pad_rows(x, n * C) for x in (q, k, v, beta, g)), n=n, C=C)
    walk = _walk if torch.is_grad_enabled() else _walk_in_place
    read, news, S = walk(chunks, S)
    out = torch.baddbmm(read.flatten(0, 1), chunks.QK.flatten(0, 1), news.flatten(0, 1))
    return out.view(n, -1, C, v.shape[2]).transpose(1, 2).reshape(n * C, *v.shape[1:])[:T], S


def _walk(chunks: "_Chunks", S: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What each chunk reads of the state before it and its V' [n, Hv, C, dv], and the state after the last."""
    read, news = [], []
    U, W = torch.matmul(chunks.inverse, chunks.V), torch.matmul(chunks.inverse, chunks.K_in)
    for u, w, Q, K_out, decay in zip(U, W, chunks.Q, chunks.K_out, chunks.decay, strict=True):
        read.append(torch.bmm(Q, S))
        news.append(torch.baddbmm(u, w, S, alpha=-1))
        S = torch.baddbmm(S * decay, K_out.transpose(1, 2), news[-1])
    return torch.stack(read), torch.stack(news), S


def _walk_in_place(chunks: "_Chunks", S: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same where no gradient asks for the steps: one product [W; -Q] S a chunk, onto [U; 0]."""
    n, Hv, C, dv = chunks.V.shape
    rows = torch.cat([torch.matmul(chunks.inverse, chunks.K_in), chunks.Q.neg()], dim=2)
    sums = chunks.V.new_zeros(n, Hv, 2 * C, dv)
    read, news = sums[:, :, C:], sums[:, :, :C]
    news.copy_(torch.matmul(chunks.inverse, chunks.V))
    S = S.clone()
    each = (rows, sums, news, chunks.K_out.transpose(2, 3), chunks.decay)
    for row, both, new, k, d in zip(*(x.unbind(0) for x in each), strict=True):
        both.baddbmm_(row, S, alpha=-1)
        S.mul_(d).baddbmm_(k, new)
    return read, news, S


def _fork(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, lengths: Sequence[int], S: Tensor) -> Tensor:
    """Sequences of at most one chunk each, all from the same state, which is read and left alone: o [T, Hv, dv]."""
    T, Hv, dv = v.shape
    C, N = max(lengths), len(lengths)
    index = _padded_rows(lengths, C).to(v.device)  # row of every real position; padding points past the end
    chunks = _Chunks(*(_pad_rows(x, T + 1)[index] for x in (q, k, v, beta, g)), n=N, C=C)
    # [N, Hv, C, dk] @ [Hv, dk, dv] with the N sequences' rows stacked a head, so that S is read, not copied N times.
    stacked = chunks.K_in.transpose(0, 1).reshape(Hv, N * C, -1)
    recalled = torch.bmm(stacked, S).view(Hv, N, C, dv).transpose(0, 1)
    new = torch.matmul(chunks.inverse, chunks.V - recalled)
    read = torch.bmm(chunks.Q.transpose(0, 1).reshape(Hv, N * C, -1), S).view(Hv, N, C, dv).transpose(0, 1)
    out = read + torch.matmul(chunks.QK, new)
    return out.transpose(1, 2).reshape(N * C, Hv, dv)[index < T]


class _Chunks:
    """Everything about n chunks of C rows that no earlier chunk changes; matrices [n, Hv, ...]."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, *, n: int, C: int) -> None:
        Hk, Hv = k.shape[1], v.shape[1]
        ratio = Hv // Hk
        Q, K, V = (x.view(n, C, *x.shape[1:]).transpose(1, 2).contiguous() for x in (q, k, v))  # [n, H, C, d]
        b = beta.view(n, C, Hv).transpose(1, 2)[..., None]
        c = g.view(n, C, Hv).transpose(1, 2).double().mul(LOG2_E).cumsum(-1)[..., None]
        # Powers of two: the library's exp takes five times as long where it meets -inf (113 and 20 us a block).
        # Neighbours' c differ little but are large under strong decay: fp32 sums cost 20 times the error (3e-6 of max).
        above = torch.full((C, C), -torch.inf, dtype=g.dtype, device=g.device).triu(1)
        D = (c - c.transpose(-1, -2)).type_as(g).add_(above).exp2_()
        last = (c[:, :, -1:] - c).type_as(g)
        grow = c.type_as(g).exp2()
        KK, QK = (_per_v_head(torch.matmul(x, K.transpose(-1, -2)), ratio) for x in (K, Q))
        K, Q = _per_v_head(K, ratio), _per_v_head(Q, ratio)
        eye = torch.eye(C, dtype=g.dtype, device=g.device)
        A = KK * (D * b)  # its diagonal is taken for one
        # X A = I: one inverse, but a third faster than A X = I (289 and 434 us for 128 matrices of 32 x 32).
        inverse = torch.linalg.solve_triangular(A, eye.expand_as(A), upper=False, unitriangular=True, left=False)
        self.inverse = inverse * b.transpose(-1, -2)
        self.V = V
        self.K_in = K * grow
        self.Q = Q * grow
        self.QK = QK * D
        self.K_out = K * last.exp2()
        self.decay = grow[:, :, -1:]


def _per_v_head(x: Tensor, ratio: int) -> Tensor:
    return x if ratio == 1 else x.repeat_interleave(ratio, dim=1)


def _pad_rows(x: Tensor, rows: int) -> Tensor:
    """Zero rows at the end: k = 0, beta = 0, g = 0 are exact no-ops."""
    if rows == x.shape[0]:
        return x
    return torch.cat([x, x.new_zeros(rows - x.shape[0], *x.shape[1:])])


def _padded_rows(lengths: Sequence[int], C: int) -> Tensor:
    """[N * C] source row of each padded position; padding reads row T, the zero row."""
    L = torch.tensor(lengths)[:, None]
    start = L.cumsum(0) - L
    position = torch.arange(C)[None]
    return torch.where(position < L, start + position, int(L.sum())).reshape(-1)
