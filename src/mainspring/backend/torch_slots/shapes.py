"""What keeps a row's bits from depending on its neighbours.

Measured on MKL 2024.2 and oneDNN 3.12, AVX-512, one and two threads, products of 48 to 3,584 columns: a row of oneDNN's
packed product is the same in any product of two rows or more, a row of MKL's in any of 12 or more; below, other kernels
sum in another order. Element-wise functions have another kernel for what is left of a vector at an array's end. So rows
and elements are padded. oneDNN's product of four to six rows is the fastest of all (512 to 1,536 columns, one thread:
174 us, one row 254), so it gets four at least.
"""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

PACKED_ROWS, PLAIN_ROWS = 4, 16
ELEMENTS = 64


def product(module: Any, x: Tensor, least: int) -> Any:
    """What `module` makes of rows x, one tensor or several, computed with at least so many rows."""
    if len(x) >= least:
        return module(x)
    y = module(at_least(x, least))
    return y[: len(x)] if isinstance(y, Tensor) else tuple(part[: len(x)] for part in y)


def at_least(x: Tensor, rows: int) -> Tensor:
    """x [T, d] with zero rows at the end."""
    return x if len(x) >= rows else F.pad(x, (0, 0, 0, rows - len(x)))


def smooth(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`function` of every element, each by the same kernel."""
    short = -x.numel() % ELEMENTS
    if not short:
        return function(x.contiguous())
    return function(F.pad(x.reshape(-1), (0, short)))[: x.numel()].view(x.shape)
