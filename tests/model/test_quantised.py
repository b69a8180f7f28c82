"""int8 rows and int4 groups: small, read by the same loader, off by at most half a step."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mainspring.errors import CheckpointError
from mainspring.model.loading import load_hybrid
from mainspring.model.quantised import (
    GROUP,
    OFFSET,
    SCALE,
    quantise_folder,
    quantise_groups,
    quantise_rows,
    widen_groups,
    widen_rows,
)
from support.models import write_tiny_weights


def test_rounding_is_at_most_half_a_step_and_zero_rows_stay() -> None:
    weight = torch.randn(40, 64, generator=torch.Generator().manual_seed(0))
    weight[3] = 0
    rows, scale = quantise_rows(weight)
    # Half a step, and the largest of a row may be clipped by what fp16 took off its scale.
    assert ((widen_rows(rows, scale) - weight).abs() <= scale.float()[:, None] * 0.6).all()
    assert not widen_rows(rows, scale)[3].any()


def test_a_quantised_folder_loads_like_any_other(tmp_path: Path) -> None:
    before = write_tiny_weights(tmp_path)
    size = (tmp_path / "model.safetensors").stat().st_size
    quantise_folder(tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_size < size / 2.5
    after = load_hybrid(tmp_path)
    for (name, old), new in zip(before.named_parameters(), after.parameters(), strict=True):
        assert (old - new).abs().max() < 0.01 * max(1.0, old.abs().max().item()), name


def test_a_scale_that_does_not_fit_is_named(tmp_path: Path) -> None:
    write_tiny_weights(tmp_path)
    quantise_folder(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.embed_tokens.weight.scale"] = torch.ones(3)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"embed_tokens\.weight\.scale"):
        load_hybrid(tmp_path)


def test_groups_are_off_by_at_most_half_a_step_and_pack_two_columns_a_byte() -> None:
    weight = torch.randn(80, 192, generator=torch.Generator().manual_seed(1))
    weight[5, 64:128] = 0.25  # a group without spread
    packed, scale, offset = quantise_groups(weight)
    assert packed.shape == (80, 96)
    assert packed.dtype == torch.uint8
    assert scale.shape == offset.shape == (80, 3)
    off = (widen_groups(packed, scale, offset) - weight).abs().unflatten(1, (3, GROUP)).amax(-1)
    assert (off <= scale.float() * 0.51 + 2e-3).all()  # fp16 keeps the least value to 2e-3
    assert off[5, 1] < 1e-3


def test_nibbles_keep_their_columns() -> None:
    weight = torch.arange(16.0).repeat(64, 4)
    assert torch.equal(widen_groups(*quantise_groups(weight)), weight)


def test_a_folder_of_four_bits_is_an_eighth_and_loads(tmp_path: Path) -> None:
    shape = {"hidden_size": 128, "intermediate_size": 256}
    before = write_tiny_weights(tmp_path, **shape)
    size = (tmp_path / "model.safetensors").stat().st_size
    quantise_folder(tmp_path, 4)
    assert (tmp_path / "model.safetensors").stat().st_size < size / 5
    stored = load_file(tmp_path / "model.safetensors")
    assert stored["model.embed_tokens.weight"].dtype == torch.uint8
    assert stored["model.layers.0.linear_attn.in_proj_b.weight"].dtype == torch.int8  # few rows
    after = load_hybrid(tmp_path)
    for (name, old), new in zip(before.named_parameters(), after.parameters(), strict=True):
        # A 15th of a group's spread, half of it either way.
        assert (old - new).abs().max() < 0.04 * max(1.0, (old.amax() - old.amin()).item()), name


@pytest.mark.parametrize("part", [SCALE, OFFSET])
def test_a_group_value_that_does_not_fit_is_named(tmp_path: Path, part: str) -> None:
    write_tiny_weights(tmp_path, hidden_size=128)
    quantise_folder(tmp_path, 4)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.embed_tokens.weight" + part] = torch.ones(3)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=rf"embed_tokens\.weight\{part}"):
        load_hybrid(tmp_path)
