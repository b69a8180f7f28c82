"""The attention kernels and what prepares their inputs, against the references."""

import numpy as np
import pytest
import torch

from mainspring.ops.attention import reference, tiles
from mainspring.ops.attention import triton as kernels
from mainspring.ops.attention_inputs import reference as plain_inputs
from mainspring.ops.attention_inputs import triton as inputs
from support.kernels import ACCURATE, DEVICE, error, randn


def rows(seed: int, lengths: list[int], D: int, ratio: int, G: int = 2):
    T = sum(lengths)
    return randn(seed, T, G * ratio, D), randn(seed + 1, T, G, D), randn(seed + 2, T, G, D)


def pasts(D: int, lengths: tuple[int, ...] = (150, 0, 7), G: int = 2):
    return [(randn(50 + n, G, n, D), randn(70 + n, G, n, D)) for n in lengths]


@pytest.mark.parametrize("last_only", [False, True])
@pytest.mark.parametrize(("D", "ratio"), [(64, 2), (16, 3), (256, 1)])
def test_branches_equal_each_sequence_alone(D: int, ratio: int, last_only: bool, monkeypatch) -> None:
    """Views cut into several stretches of keys, and short ones that are not."""
    monkeypatch.setattr(tiles, "SPLIT_KEYS", 64)
    lengths, parents = [5, 40, 70, 3, 1], [-1, 0, 0, 2, 2]
    q, k, v = rows(0, lengths, D, ratio)
    select = torch.tensor(lengths, device=DEVICE).cumsum(0) - 1 if last_only else None
    q = q if select is None else q[select]
    where = {"lengths": lengths, "parents": parents, "past": pasts(D), "select": select}
    assert error(kernels.attention(q, k, v, **where), reference.attention(q, k, v, **where)) < ACCURATE


def test_branches_do_not_see_each_other() -> None:
    q, k, v = rows(4, [20, 20], 64, 2)
    where = {"lengths": [20, 20], "parents": [0, 0], "past": pasts(64)}
    before = kernels.attention(q, k, v, **where)
    k[20:] *= -3
    v[20:] += 100
    after = kernels.attention(q, k, v, **where)
    assert torch.equal(before[:20], after[:20])
    assert error(after[20:], before[20:]) > 1.0


def test_a_branch_is_the_same_in_any_company() -> None:
    """Splits follow from the view's length and tiles from the branches before: to rounding, nothing moves."""
    q, k, v = rows(5, [9, 30, 25], 64, 2)
    past = pasts(64)
    together = kernels.attention(q, k, v, lengths=[9, 30, 25], parents=[0, 0, 2], past=past)
    alone = kernels.attention(q[9:39], k[9:39], v[9:39], lengths=[30], parents=[0], past=past)
    assert error(together[9:39], alone) < ACCURATE


@pytest.mark.parametrize(("D", "ratio"), [(64, 2), (256, 3)])
def test_views_are_causal_gated_and_go_on_from_their_past(D: int, ratio: int) -> None:
    tiling, lengths, positions = kernels.tilings(D, 4)[1][0], [130, 1, 90], [0, 5, 70]
    q, _, _ = rows(6, lengths, D, ratio)
    gate = randn(9, len(q), 2 * ratio, 2 * D)
    stores = [randn(20 + n, n + p, 2, 2, D) for n, p in zip(lengths, positions, strict=True)]
    items = tiles.view_items(lengths, positions, rows=tiling.query_rows(ratio), block=tiling.keys)
    last = np.concatenate([np.arange(p, p + n) for n, p in zip(lengths, positions, strict=True)]).astype(np.int32)
    out = torch.full_like(q, torch.nan)
    kernels.attend(
        q, out, gate=gate, groups=2, tiling=tiling, items=torch.from_numpy(items).to(DEVICE),
        last=torch.from_numpy(last).to(DEVICE),
        stores=torch.tensor([[s.data_ptr(), 0] for s in stores], device=DEVICE),
    )  # fmt: skip
    new = [store[p:] for store, p in zip(stores, positions, strict=True)]
    k, v = (torch.cat([rows[:, part] for rows in new]) for part in (0, 1))
    past = [tuple(s[:p, part].transpose(0, 1) for part in (0, 1)) for s, p in zip(stores, positions, strict=True)]
    right = reference.attention(q, k, v, lengths=lengths, parents=[0, 1, 2], past=past) * gate[..., D:].sigmoid()
    assert error(out, right) < ACCURATE


def test_splits_follow_from_the_length_alone() -> None:
    first = last = np.arange(100, dtype=np.int32)
    alone, _ = tiles.branch_items([10], [5000], first, last, rows=16, block=64)
    crowd, _ = tiles.branch_items([60, 10, 30], [9, 5000, 70_000], first, last, rows=16, block=64)
    assert alone[:, 3:6].tolist() == crowd[crowd[:, 2] == 1][:, 3:6].tolist() == [
        [0, 1408, 1408], [1408, 2816, 2816], [2816, 4224, 4224], [4224, 4992, 5000],
    ]  # fmt: skip
    most = crowd[crowd[:, 2] == 2]
    assert most[:, 8].max() == tiles.MAX_SPLITS
    assert most[:, 5].max() == 70_000
    assert (most[:, 3] % 64 == 0).all()


@pytest.mark.parametrize(("D", "half"), [(64, 8), (256, 32), (16, 8)])
def test_inputs_equal_the_definition(D: int, half: int) -> None:
    T, G = 19, 2
    weight, cos, sin = randn(1, D), randn(2, T, half), randn(3, T, half)
    p = randn(4, T, 3 * 2 * D + 2 * G * D)
    gate, kv = p[:, : 6 * D].unflatten(1, (3, 2 * D)), p[:, 6 * D :]
    k, v = (x.unflatten(1, (G, D)) for x in kv.split(G * D, dim=1))
    args = (weight, cos, sin, 1e-6)
    assert error(inputs.queries(gate, *args), plain_inputs.queries(gate, *args)) < ACCURATE
    assert error(inputs.keys_values(k, v, *args), plain_inputs.keys_values(k, v, *args)) < ACCURATE


def test_keys_go_to_their_owners_and_padding_nowhere() -> None:
    T, G, D = 5, 2, 16
    k, v = randn(1, T, G, D), randn(2, T, G, D)
    weight, cos, sin = randn(3, D), randn(4, T, 4), randn(5, T, 4)
    layers, own = torch.zeros(2, 8, 2, G, D, device=DEVICE), torch.zeros(3, 2, G, D, device=DEVICE)
    stride = layers.stride(0) * layers.element_size()
    inputs.store_keys_values(
        k, v, weight, cos, sin, 1e-6, own=own, layer=1,
        owners=torch.tensor([0, -1, 1, 0, -1], dtype=torch.int32, device=DEVICE),
        places=torch.tensor([6, 2, 0, 7, 0], dtype=torch.int32, device=DEVICE),
        stores=torch.tensor([[layers.data_ptr(), stride], [0, 0]], device=DEVICE),
    )  # fmt: skip
    right = plain_inputs.keys_values(k, v, weight, cos, sin, 1e-6)
    assert error(layers[1, [6, 7]], right[[0, 3]]) < ACCURATE
    assert error(own[[2, 0]], right[[1, 4]]) < ACCURATE
    assert not layers[0].any()
    assert not layers[1, :6].any()
    assert not own[1].any()
