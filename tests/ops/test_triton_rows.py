"""Products of few rows, with what is done on the way."""

import pytest
import torch
import torch.nn.functional as F

from mainspring.ops.linear import triton_rows as rows
from mainspring.ops.rms_norm import reference as norms
from support.kernels import ACCURATE, error, randn

EPS = 1e-6


@pytest.mark.parametrize(("T", "K", "N"), [(1, 64, 48), (7, 320, 20), (70, 96, 130)])
def test_plain_products(T: int, K: int, N: int) -> None:
    x, w = randn(0, T, K), randn(1, N, K)
    assert error(rows.plain(x, w), x.double() @ w.double().T) < ACCURATE
    parts = rows.summed(x, w)
    assert parts.dtype == torch.float32
    assert error(parts.sum(0), x.double() @ w.double().T) < ACCURATE


def test_inner_dimensions_are_cut_by_the_weights_alone() -> None:
    assert rows.splits(1024, 3584) == rows.splits(1024, 3584) > 1
    assert rows.splits(1024, 256) == 1
    x, w = randn(0, 3, 1024), randn(1, 32, 1024)
    parts = rows.summed(x, w)
    assert len(parts) == rows.splits(32, 1024) > 1
    assert error(parts.sum(0), x.double() @ w.double().T) < ACCURATE


@pytest.mark.parametrize("swiglu", [False, True])
@pytest.mark.parametrize("parts", [0, 1, 3])
def test_residual_sum_norm_and_gate(parts: int, swiglu: bool) -> None:
    T, K, N = 5, 300, 40
    h, w, scale = randn(0, T, K), randn(1, N, K) * K**-0.5, randn(2, K)
    some = randn(3, parts, T, K) if parts else None
    total, out = rows.normed(h, some, scale, w, EPS, swiglu=swiglu)
    wanted, x = norms.add_rms_norm(h.double(), None if some is None else some.double().sum(0), scale, EPS)
    right = x @ w.double().T
    if swiglu:
        right = F.silu(right[:, : N // 2]) * right[:, N // 2 :]
    assert error(total, wanted) < ACCURATE
    assert error(out, right) < ACCURATE
    if some is not None:
        assert error(rows.norm(h, some, scale, EPS), x) < ACCURATE


def test_gated_heads() -> None:
    T, heads, d, N = 6, 3, 64, 40
    o, wide, scale, w = randn(0, T, heads * d), randn(1, T, 300), randn(2, d), randn(3, N, heads * d)
    z = wide[:, 10 : 10 + heads * d]
    got = rows.gated(o, z, scale, w, EPS).sum(0)
    right = norms.gated_rms_norm(o.double().view(T, heads, d), z.double(), scale, EPS) @ w.double().T
    assert error(got, right) < ACCURATE


def test_half_precision() -> None:
    h, w, scale = randn(0, 4, 256).bfloat16(), (randn(1, 64, 256) / 16).bfloat16(), randn(2, 256)
    _, out = rows.normed(h, randn(3, 2, 4, 256), scale, w, EPS)
    assert out.dtype == torch.bfloat16
    _, x = norms.add_rms_norm(h.double(), randn(3, 2, 4, 256).double().sum(0), scale, EPS)
    assert error(out, x @ w.double().T) < 1e-2


@pytest.mark.parametrize(("large", "wide"), [(1, 1 << 15), (1, 1), (1 << 24, 1)])
def test_tiles_of_large_and_wide_weights(large: int, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same products, whatever the tiles; here of weights that are small."""
    x, w, scale = randn(0, 9, 320), randn(1, 70, 320), randn(2, 320)
    kinds: tuple[rows.Kind, ...] = ("plain", "swiglu", "summed")
    usual = [rows.tile(9, 70, 320, kind) for kind in kinds]
    wanted = rows.plain(x, w), *rows.normed(x, None, scale, w, EPS, swiglu=True), rows.summed(x, w).sum(0)
    monkeypatch.setattr(rows, "LARGE", large)
    monkeypatch.setattr(rows, "WIDE", wide)
    changed = [kind for kind, tile in zip(kinds, usual, strict=True) if rows.tile(9, 70, 320, kind) != tile]
    assert changed == (["plain", "swiglu", "summed"] if large == 1 else ["plain"])
    found = rows.plain(x, w), *rows.normed(x, None, scale, w, EPS, swiglu=True), rows.summed(x, w).sum(0)
    for got, right in zip(found, wanted, strict=True):
        assert error(got, right) < ACCURATE


@pytest.mark.parametrize("T", [2, 16])
def test_other_rows_change_no_bit(T: int) -> None:
    h, w, scale, parts = randn(0, T, 320), randn(1, 40, 320), randn(2, 320), randn(3, 2, T, 320)
    _, whole = rows.normed(h, parts, scale, w, EPS)
    for i in range(T):
        _, alone = rows.normed(h[i : i + 1], parts[:, i : i + 1].contiguous(), scale, w, EPS)
        assert torch.equal(alone[0], whole[i])
