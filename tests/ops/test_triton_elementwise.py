"""Kernels that move rows: against their references."""

import pytest
import torch

from mainspring.ops.delta_inputs import Heads
from mainspring.ops.delta_inputs import reference as plain_delta
from mainspring.ops.delta_inputs import triton as delta
from mainspring.ops.label_logits import reference as plain_labels
from mainspring.ops.label_logits import triton as labels
from mainspring.ops.rms_norm import reference as plain_norm
from mainspring.ops.rms_norm import triton as norm
from mainspring.ops.swiglu import reference as plain_swiglu
from mainspring.ops.swiglu import triton as swiglu
from support.kernels import ACCURATE, DEVICE, error, randn

HEADS = Heads(1, 2, 64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("keep", [True, False])
def test_delta_inputs(keep: bool, dtype: torch.dtype) -> None:
    """Sequences of every length around the convolution's memory, with a history and without, of strided rows."""
    lengths, parents = [40, 1, 2, 3, 9], [0, 2, -1, 2, -1]
    wide = HEADS.channels + 2 * 64 + 4
    p = randn(0, sum(lengths), wide + 5).to(dtype)[:, :wide]
    args = (p, randn(1, HEADS.channels, 4).to(dtype) * 0.5, randn(2, 2), randn(3, 2))
    where = {"heads": HEADS, "lengths": lengths, "parents": parents, "keep": keep}
    where["history"] = randn(4, 3, 3, HEADS.channels).to(dtype)
    got, right = delta.delta_inputs(*args, **where), plain_delta.delta_inputs(*args, **where)
    bound = ACCURATE if dtype == torch.float32 else 2e-3
    for a, b in zip(got[:5], right[:5], strict=True):
        assert a.dtype == b.dtype
        assert error(a, b) < bound
    assert (got[5] is None) == (not keep)
    if keep:
        assert torch.equal(got[5], right[5])


def test_values_beyond_fp16_are_cut() -> None:
    """A bf16 projection may hold what fp16 can't: it must not become infinite, which would spoil a whole view."""
    p = torch.zeros(2, HEADS.channels + 2 * 64 + 4, device=DEVICE, dtype=torch.bfloat16)
    p[:, 2 * 64 :] = 1e6
    weight = torch.ones(HEADS.channels, 4, device=DEVICE, dtype=torch.bfloat16)
    where = {"heads": HEADS, "lengths": [2], "parents": [-1], "history": None, "keep": False}
    q, k, v, *_ = delta.delta_inputs(p, weight, randn(2, 2), randn(3, 2), **where)
    assert q.dtype == k.dtype == v.dtype == torch.float16
    assert (v == 65504).all()


def test_gates_at_both_ends() -> None:
    """softplus of large and very negative values, without overflow."""
    p = torch.zeros(3, HEADS.channels + 2 * 64 + 4, device=DEVICE)
    p[:, -2:] = torch.tensor([-90.0, 0.0, 90.0], device=DEVICE)[:, None]
    args = (p, randn(1, HEADS.channels, 4), randn(2, 2), randn(3, 2))
    where = {"heads": HEADS, "lengths": [3], "parents": [-1], "history": None, "keep": False}
    got, right = delta.delta_inputs(*args, **where)[4], plain_delta.delta_inputs(*args, **where)[4]
    assert torch.allclose(got, right, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("width", [48, 64, 2560])
@pytest.mark.parametrize("add", [True, False])
def test_add_rms_norm(width: int, add: bool) -> None:
    h, y, w = randn(0, 9, width), randn(1, 9, width) if add else None, randn(2, width)
    right = plain_norm.add_rms_norm(h, y, w, 1e-6)
    for a, b in zip(norm.add_rms_norm(h, None if y is None else y.clone(), w, 1e-6), right, strict=True):
        assert error(a, b) < ACCURATE


def test_gated_rms_norm_of_strided_gates() -> None:
    o, z, w = randn(0, 33, 4, 64), randn(1, 33, 300)[:, 10:266], randn(2, 64)
    assert error(norm.gated_rms_norm(o, z, w, 1e-6), plain_norm.gated_rms_norm(o, z, w, 1e-6)) < ACCURATE


@pytest.mark.parametrize("width", [96, 3000])
def test_swiglu(width: int) -> None:
    x = 4 * randn(0, 7, 2 * width)
    assert error(swiglu.swiglu(x), plain_swiglu.swiglu(x)) < ACCURATE


def test_label_logits() -> None:
    h, w, head = randn(0, 9, 48), randn(1, 48), randn(2, 300, 48)
    rows, ids = (torch.tensor(x, dtype=torch.int32, device=DEVICE) for x in ([0, 0, 8, 3], [5, 299, 0, 5]))
    args = (h, w, head, rows, ids, 1e-6)
    assert error(labels.label_logits(*args), plain_labels.label_logits(*args)) < ACCURATE
