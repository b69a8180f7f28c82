"""Products with few outputs over hundreds of rows, where the library's tiles leave most of a device idle.

832 rows by 1,024 outputs are 28 tiles of 128 x 256 for 132 multiprocessors; in tiles of 64 x 64 they are 208. `suits`
says where that has been measured to pay; elsewhere the library is as fast or faster.
"""

from typing import NamedTuple

import torch.nn.functional as F  # noqa: N812
import triton
import triton.language as tl
from torch import Tensor

MOST_OUTPUTS = 1024
ROWS = range(513, 1025)


class Tile(NamedTuple):
    """Rows, outputs and inner values a step, and how the compiler lays them out."""

    rows: int
    outputs: int
    inner: int
    warps: int
    stages: int


TILE = Tile(64, 64, 64, 4, 4)


@triton.jit(do_not_specialize=["M"])
def _linear(
    x, w, out, M, N,
    K: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INNER: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    row, n = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    k = tl.arange(0, INNER)
    of_x = x + tl.minimum(row, M - 1)[:, None] * K + k[None, :]
    of_w = w + tl.minimum(n, N - 1)[None, :] * K + k[:, None]
    acc = tl.zeros((ROWS, OUTPUTS), tl.float32)
    for _ in range(0, K, INNER):
        acc = tl.dot(tl.load(of_x), tl.load(of_w), acc, input_precision=EXACT)
        of_x += INNER
        of_w += INNER
    at = out + row[:, None] * N + n[None, :]
    tl.store(at, acc.to(out.dtype.element_ty), mask=(row < M)[:, None] & (n < N)[None, :])


def suits(x: Tensor, weight: Tensor) -> bool:
    return len(x) in ROWS and len(weight) <= MOST_OUTPUTS and weight.shape[1] % TILE.inner == 0


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T, by the library where it is the faster."""
    if not suits(x, weight):
        return F.linear(x, weight)
    M, N = len(x), len(weight)
    out = x.new_empty(M, N)
    _linear[(triton.cdiv(M, TILE.rows), triton.cdiv(N, TILE.outputs))](
        x, weight, out, M, N, K=weight.shape[1], ROWS=TILE.rows, OUTPUTS=TILE.outputs, INNER=TILE.inner, EXACT="tf32x3",
        num_warps=TILE.warps, num_stages=TILE.stages,
    )  # fmt: skip
    return out
