"""Triton's interpreter, put right and made faster: what `support.kernels` runs kernels with where there is no GPU.

Put right: its matrix product takes bf16 for the integers it keeps them as and tf32 for fp32, and it truncates to bf16
where a device rounds to nearest. Here precision costs what it does on a device. Sums are taken in fp64: a host's
library adds the terms of a row in an order that may follow from where the row is.

Made faster, by two thirds of a kernel's time and more: at every launch and at every call of one kernel's function by
another it puts its own functions into the language, which is done once here, since nothing in this process compiles;
with every value it makes the same few types and shapes again, which nobody changes, so they are kept by name; and of
sums of integers it works out whether they overflow, which without its `debug` it then tells nobody.
"""

from types import FunctionType
from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton.ir import INPUT_PRECISION
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

_truncate, _numpy_type = InterpreterBuilder.create_fp_trunc, interpreter._get_np_dtype
_block_type, _tensor, _equal = tl.core.block_type.__init__, tl.core.tensor.__init__, tl.core.tuple.__eq__
_numpy_types: dict[str, np.dtype] = {}
_block_types: dict[tuple[Any, ...], dict[str, Any]] = {}
_shapes: dict[tuple[int, ...], tuple[Any, Any]] = {}


def install() -> None:
    InterpreterBuilder.create_dot = _dot
    InterpreterBuilder.create_fp_trunc = _round
    interpreter._patch_lang(FunctionType(_kernel.__code__, {"tl": tl, "core": tl.core}))
    interpreter._patch_lang = lambda _: interpreter._LangPatchScope()
    interpreter._get_np_dtype = _kept_numpy_type
    tl.core.block_type.__init__ = _kept_block_type
    tl.core.tensor.__init__ = _of_kept_shape
    tl.core.tuple.__eq__ = _same_or_equal
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)


# ---------------------------------------------------------------- put right


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


def _round(self: Any, source: Any, kind: Any) -> Any:
    if kind.scalar != tl.bfloat16 or source.dtype.scalar != tl.float32:
        return _truncate(self, source, kind)
    bits = np.ascontiguousarray(source.data).view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    return TensorHandle(np.where(np.isnan(source.data), 0x7FC0, nearest).astype(np.uint16), kind.scalar)


# ---------------------------------------------------------------- made faster


def _kernel() -> None:
    """In the place of one, whose globals say which modules the interpreter's functions go into."""


def _kept_numpy_type(kind: Any) -> np.dtype:
    if kind.name not in _numpy_types:
        _numpy_types[kind.name] = _numpy_type(kind)
    return _numpy_types[kind.name]


def _kept_block_type(self: Any, element: Any, shape: Any) -> None:
    key = (element.name, *shape)
    if key not in _block_types:
        _block_type(self, element, shape)
        _block_types[key] = dict(vars(self))
    vars(self).update(_block_types[key])


def _of_kept_shape(self: Any, handle: Any, kind: Any) -> None:
    key = tuple(kind.shape.values) if kind.is_block() else ()
    if key not in _shapes:
        _tensor(self, handle, kind)
        _shapes[key] = self.shape, self.numel
    self.handle, self.type, self.dtype = handle, kind, kind.scalar
    self.shape, self.numel = _shapes[key]


def _same_or_equal(self: Any, other: Any) -> Any:
    return tl.constexpr(True) if self is other else _equal(self, other)
