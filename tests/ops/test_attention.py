from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.ops.attention import fused, reference


def case(
    seed: int, lengths: list[int], past_lengths: tuple[int, ...] = (50, 0, 7), Hq: int = 4, G: int = 2, D: int = 16
):
    g = torch.Generator().manual_seed(seed)
    T = sum(lengths)
    q = torch.randn(T, Hq, D, generator=g)
    k, v = torch.randn(2, T, G, D, generator=g)
    past = [tuple(torch.randn(2, G, n, D, generator=g)) for n in past_lengths]
    return q, k, v, past


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=8),
    parents=st.lists(st.integers(-1, 2), min_size=8, max_size=8),
    last_only=st.booleans(),
    log_sums=st.booleans(),
)
def test_fused_equals_each_sequence_alone(
    seed: int, lengths: list[int], parents: list[int], last_only: bool, log_sums: bool
) -> None:
    q, k, v, past = case(seed, lengths)
    select = torch.tensor(lengths).cumsum(0) - 1 if last_only else None
    q = q if select is None else q[select]
    where = {"lengths": lengths, "parents": parents[: len(lengths)], "past": past, "select": select}
    with patch.object(fused, "_gives_log_sums", lambda *_: log_sums):
        got = fused.attention(q, k, v, **where)
    assert torch.allclose(got, reference.attention(q, k, v, **where), atol=2e-6, rtol=1e-5)


def test_many_branches_are_tiled_and_right() -> None:
    lengths = [40] * 30
    assert sum(lengths) > 2 * fused.TILE_ROWS
    q, k, v, past = case(0, lengths)
    where = {"lengths": lengths, "parents": [0] * 30, "past": past}
    assert torch.allclose(fused.attention(q, k, v, **where), reference.attention(q, k, v, **where), atol=2e-6)


def test_masks_stay_small_and_rows_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long piece on a long past goes in as many masks as it takes, none of them over the bound."""
    sizes: list[int] = []
    whole = fused.F.scaled_dot_product_attention

    def watched(*args: torch.Tensor, **options: Any) -> torch.Tensor:
        if (mask := options.get("attn_mask")) is not None:
            sizes.append(mask.numel())
        return whole(*args, **options)

    monkeypatch.setattr(fused, "_gives_log_sums", lambda *_: False)
    monkeypatch.setattr(fused, "MASK_ELEMENTS", 5000)
    monkeypatch.setattr(fused.F, "scaled_dot_product_attention", watched)
    lengths = [300, 10, 10]
    q, k, v, past = case(7, lengths)
    where = {"lengths": lengths, "parents": [0, 0, 2], "past": past}
    assert torch.allclose(fused.attention(q, k, v, **where), reference.attention(q, k, v, **where), atol=2e-6)
    assert len(sizes) > 300 * 360 * 2 // 5000
    assert max(sizes) <= 5000


@pytest.mark.parametrize("lengths", [[40] * 30, [700], [5, 600, 5]])
def test_forks_read_the_past_where_it_lies(lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tile gets the parent's own keys and values, never a copy, and no mask as long as the past."""
    read: list[tuple[int, int]] = []
    whole = fused._flash

    def watched(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        if k.shape[2] == 50:
            read.append((k.data_ptr(), v.data_ptr()))
        assert options.get("attn_mask", k).numel() <= 4 * fused.TILE_ROWS * fused.TILE_ROWS
        return whole(q, k, v, **options)

    monkeypatch.setattr(fused, "_flash", watched)
    q, k, v, past = case(0, lengths)
    where = {"lengths": lengths, "parents": [0] * len(lengths), "past": past}
    assert torch.allclose(fused.attention(q, k, v, **where), reference.attention(q, k, v, **where), atol=2e-6)
    assert read
    assert set(read) == {(past[0][0].data_ptr(), past[0][1].data_ptr())}


def test_gradients_take_the_path_that_has_them() -> None:
    q, k, v, past = case(3, [20, 30])
    q.requires_grad_()
    where = {"lengths": [20, 30], "parents": [0, 2], "past": past}
    (got,) = torch.autograd.grad(fused.attention(q, k, v, **where).square().sum(), q)
    (wanted,) = torch.autograd.grad(reference.attention(q, k, v, **where).square().sum(), q)
    assert torch.allclose(got, wanted, atol=1e-4)


def test_selecting_nothing_gives_nothing() -> None:
    q, k, v, past = case(0, [5])
    out = fused.attention(q[:0], k, v, lengths=[5], parents=[-1], past=past, select=torch.zeros(0, dtype=torch.long))
    assert out.shape == (0, 4, 16)


def test_branches_do_not_see_each_other() -> None:
    q, k, v, past = case(4, [20, 20])
    where = {"lengths": [20, 20], "parents": [0, 0], "past": past}
    before = fused.attention(q, k, v, **where)
    k, v = k.clone(), v.clone()
    k[20:] *= -3
    v[20:] += 100
    after = fused.attention(q, k, v, **where)
    assert torch.allclose(before[:20], after[:20], atol=1e-6)
    assert not torch.allclose(before[20:], after[20:], atol=1.0)
