"""int8 rows: small, read by the same loader, off by at most half a step."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mainspring.errors import CheckpointError
from mainspring.model.loading import load_hybrid
from mainspring.model.quantised import quantise_folder, quantise_rows, widen_rows
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
