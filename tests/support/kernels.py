"""Triton kernels in tests: on the GPU where there is one, else through Triton's interpreter on the CPU (`conftest`).

The interpreter's matrix product takes bf16 for the integers it keeps them as and tf32 for fp32, and it truncates to
bf16 where a device rounds to nearest: put right here, so that precision costs what it does on a device. Sums are taken
in fp64: a host's library adds the terms of a row in an order that may follow from where the row is.
"""

import os
from typing import Any

import numpy as np
import pytest
import torch

DEVICE = "cpu" if os.environ["TRITON_INTERPRET"] == "1" else "cuda"
pytest.importorskip("triton")

if DEVICE == "cpu":
    import triton.language as tl
    from triton._C.libtriton.ir import INPUT_PRECISION
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def _values(handle: Any) -> np.ndarray:
        if handle.dtype.scalar == tl.bfloat16:
            return (handle.data.astype(np.uint32) << 16).view(np.float32)
        return handle.data

    def _tf32(values: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(values).view(np.uint32)
        return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)

    def _dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        left, right = _values(a), _values(b)
        if a.dtype.scalar == tl.float32 and input_precision == INPUT_PRECISION.TF32:
            left, right = _tf32(left), _tf32(right)
        product = np.matmul(left, right, dtype=np.float64).astype(d.data.dtype)
        return TensorHandle(product + d.data, d.dtype.scalar)

    _truncate = InterpreterBuilder.create_fp_trunc

    def _round(self: Any, source: Any, kind: Any) -> Any:
        if kind.scalar != tl.bfloat16 or source.dtype.scalar != tl.float32:
            return _truncate(self, source, kind)
        bits = np.ascontiguousarray(source.data).view(np.uint32)
        nearest = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
        return TensorHandle(np.where(np.isnan(source.data), 0x7FC0, nearest).astype(np.uint16), kind.scalar)

    InterpreterBuilder.create_dot = _dot
    InterpreterBuilder.create_fp_trunc = _round

ACCURATE = 2e-6 if DEVICE == "cpu" else 2e-5
"""Relative error allowed in fp32: sums in another order; on the device, products of three tf32 parts."""


def error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """|got - wanted| / |wanted|, infinite where a value is not finite (an output never written, say)."""
    if not torch.isfinite(got.float()).all():
        return float("inf")
    return ((got.double() - wanted.double()).norm() / wanted.double().norm().clamp(min=1e-30)).item()


def randn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
