"""Triton kernels in tests: on the GPU where there is one, else through Triton's interpreter on the CPU (`conftest`)."""

import os

import pytest
import torch

DEVICE = "cpu" if os.environ["TRITON_INTERPRET"] == "1" else "cuda"
pytest.importorskip("triton")

if DEVICE == "cpu":
    from support import interpreter

    interpreter.install()

ACCURATE = 2e-6 if DEVICE == "cpu" else 2e-5
"""Relative error allowed in fp32: sums in another order; on the device, products of three tf32 parts."""


def error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """|got - wanted| / |wanted|, infinite where a value is not finite (an output never written, say)."""
    if not torch.isfinite(got.float()).all():
        return float("inf")
    return ((got.double() - wanted.double()).norm() / wanted.double().norm().clamp(min=1e-30)).item()


def randn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
