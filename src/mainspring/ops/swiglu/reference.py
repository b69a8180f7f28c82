"""The definition."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def swiglu(x: Tensor) -> Tensor:
    gate, up = x.float().chunk(2, dim=-1)
    return (F.silu(gate) * up).type_as(x)
