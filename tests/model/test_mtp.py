"""The drafting head: saved and read in the published layout, row by row the same as all at once."""

from pathlib import Path

import torch
from safetensors.torch import load_file

from mainspring.model.loading import load_hybrid, load_mtp
from mainspring.model.mtp import MtpHead
from mainspring.model.quantised import quantise_folder
from mainspring.model.saving import initialise, save_hybrid
from support.models import random_tokens, tiny_config, tiny_model, write_tiny_weights


def head(seed: int = 1) -> MtpHead:
    return initialise(MtpHead(tiny_config()), seed, std=0.15).requires_grad_(False)


def test_it_is_saved_under_published_names_and_read_back(tmp_path: Path) -> None:
    model, drafting = tiny_model(0), head()
    save_hybrid(model, tmp_path, drafting)
    names = {name for name in load_file(tmp_path / "model.safetensors") if name.startswith("mtp.")}
    assert {"mtp.fc.weight", "mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight"} < names
    assert {"mtp.norm.weight", "mtp.layers.0.self_attn.q_norm.weight", "mtp.layers.0.mlp.up_proj.weight"} < names
    found = load_mtp(tmp_path)
    assert found is not None
    for (name, before), after in zip(drafting.named_parameters(), found.parameters(), strict=True):
        assert torch.equal(before, after), name
    load_hybrid(tmp_path)  # the trunk reads the same file
    quantise_folder(tmp_path, 4)
    assert load_mtp(tmp_path) is not None


def test_a_checkpoint_without_one_has_none(tmp_path: Path) -> None:
    write_tiny_weights(tmp_path)
    assert load_mtp(tmp_path) is None


def test_row_by_row_equals_all_at_once() -> None:
    model, drafting, tokens = tiny_model(0), head(), random_tokens(3, 12)
    hidden = model.extend(tokens[:-1], [11], [model.new_state()], update=True)
    embedded = model.embed(tokens[1:])
    whole = drafting.extend(embedded, hidden, drafting.new_state(11))
    state = drafting.new_state()
    rows = [drafting.extend(embedded[i : i + 1], hidden[i : i + 1], state) for i in range(11)]
    assert (torch.cat(rows) - whole).abs().max() < 1e-5
    assert state.length == 11
