"""What keeps a row's bits from depending on its neighbours.

Measured on MKL 2024.2 and oneDNN 3.12, AVX-512, one and two threads, products of 48 to 3,584 columns: a row of oneDNN's
packed product is the same in any product of two rows or more, a row of MKL's in any of 12 or more; below, other kernels
sum in another order. So rows are padded. oneDNN's product of four to six rows is the fastest of all (512 to 1,536
columns, one thread: 174 us, one row 254), so it gets four at least.

silu, sigmoid and softplus have another kernel for what is left of a vector at the end of a thread's share, and round
elsewhere there (exp, cos and sin do not): shares are made whole vectors, the rest is padded.
"""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

PACKED_ROWS, PLAIN_ROWS = 4, 16
ELEMENTS = 64
SHARE = 32_768
"""The least elements that the library gives a thread."""


def product(module: Any, x: Tensor, least: int) -> Any:
    """What `module` makes of rows x, one tensor or several, computed with at least so many rows."""
    if len(x) >= least:
        return module(x)
    y = module(at_least(x, least))
    return y[: len(x)] if isinstance(y, Tensor) else tuple(part[: len(x)] for part in y)


def at_least(x: Tensor, rows: int) -> Tensor:
    """x [T, d] with zero rows at the end."""
    return x if len(x) >= rows else F.pad(x, (0, 0, 0, rows - len(x)))


def silu(x: Tensor) -> Tensor:
    return _even(torch.ops.aten.silu.out, x)


def sigmoid(x: Tensor) -> Tensor:
    return _even(torch.ops.aten.sigmoid.out, x)


def softplus(x: Tensor) -> Tensor:
    return _even(torch.ops.aten.softplus.out, x)


def _even(function: Any, x: Tensor) -> Tensor:
    """`function` of every element, each by the same kernel."""
    flat = x.contiguous().view(-1)
    out = torch.empty_like(flat)
    whole = _whole(len(flat), torch.get_num_threads())
    function(flat[:whole], out=out[:whole])
    if whole < len(flat):
        short = -(len(flat) - whole) % ELEMENTS
        rest = F.pad(flat[whole:], (0, short))
        out[whole:] = function(rest, out=torch.empty_like(rest))[: len(flat) - whole]
    return out.view(x.shape)


def _whole(count: int, threads: int) -> int:
    """The most elements up to `count` that the library shares out in whole vectors."""
    while count % (ELEMENTS * _shares(count, threads)):
        count -= count % (ELEMENTS * _shares(count, threads))
    return count


def _shares(count: int, threads: int) -> int:
    return max(min(threads, -(-count // SHARE)), 1) if count > SHARE else 1
