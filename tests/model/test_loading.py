"""Folders as people have them, and every fault named."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mainspring.errors import CheckpointError
from mainspring.model.config import read_config
from mainspring.model.loading import load_hybrid
from mainspring.model.saving import save_hybrid
from support.models import random_tokens, tiny_config, tiny_model, write_tiny_weights

Tensors = dict[str, torch.Tensor]


def logits(model, length: int = 40) -> torch.Tensor:
    with torch.inference_mode():
        tokens = random_tokens(0, length)
        return model.logits(model.extend(tokens, [length], [model.new_state()], update=True))


def rewrite(folder: Path, change: Callable[[Tensors], Tensors]) -> None:
    path = folder / "model.safetensors"
    tensors = change(load_file(path))
    save_file({name: t.contiguous() for name, t in tensors.items()}, path)


@pytest.mark.parametrize("tied", [False, True])
def test_saving_and_loading_is_exact(tmp_path: Path, tied: bool) -> None:
    model = write_tiny_weights(tmp_path, tie_word_embeddings=tied)
    assert ("lm_head.weight" in load_file(tmp_path / "model.safetensors")) == (not tied)
    assert torch.equal(logits(load_hybrid(tmp_path)), logits(model))


def test_wrapped_names_and_vision_tensors(tmp_path: Path) -> None:
    model = write_tiny_weights(tmp_path)

    def wrap(tensors: Tensors) -> Tensors:
        named = {name.replace("model.", "model.language_model.", 1): t for name, t in tensors.items()}
        return named | {"model.visual.patch_embed.weight": torch.zeros(2), "mtp.norm.weight": torch.zeros(48)}

    rewrite(tmp_path, wrap)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_5", "text_config": config}))
    assert torch.equal(logits(load_hybrid(tmp_path)), logits(model))


def test_names_of_the_other_wrapping(tmp_path: Path) -> None:
    """Some saves put the wrapper's name first: `language_model.model.*`, `language_model.lm_head`."""
    model = write_tiny_weights(tmp_path, tie_word_embeddings=False)
    rewrite(tmp_path, lambda tensors: {f"language_model.{name}": t for name, t in tensors.items()})
    assert torch.equal(logits(load_hybrid(tmp_path)), logits(model))


def test_a_tied_head_is_one_tensor(tmp_path: Path) -> None:
    write_tiny_weights(tmp_path)
    rewrite(tmp_path, lambda tensors: {name: t.bfloat16() for name, t in tensors.items()})
    model = load_hybrid(tmp_path)
    assert model.head.weight is model.embed.weight


def test_every_number_of_a_config_survives_saving(tmp_path: Path) -> None:
    changes = {
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 777,
        "eos_token_id": [3, 4],
        "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.25},
        "layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"],
        "tie_word_embeddings": False,
        "linear_conv_kernel_dim": 3,
    }
    write_tiny_weights(tmp_path, **changes)
    assert read_config(tmp_path) == tiny_config(**changes)


def test_half_precision_weights_become_fp32(tmp_path: Path) -> None:
    write_tiny_weights(tmp_path)
    rewrite(tmp_path, lambda tensors: {name: t.bfloat16() for name, t in tensors.items()})
    model = load_hybrid(tmp_path)
    assert all(p.dtype == torch.float32 for p in model.parameters())


def poison(name: str, value: float) -> Callable[[Tensors], Tensors]:
    def change(tensors: Tensors) -> Tensors:
        tensors[name].view(-1)[3] = value
        return tensors

    return change


A_TENSOR = "model.layers.0.linear_attn.out_proj.weight"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: {k: v for k, v in t.items() if k != A_TENSOR}, f"tensor '{A_TENSOR}' is missing"),
        (lambda t: t | {A_TENSOR: t[A_TENSOR][:, :5]}, f"'{A_TENSOR}' has shape [48, 5], config.json wants [48, 96]"),
        (lambda t: t | {A_TENSOR: t[A_TENSOR].int()}, f"'{A_TENSOR}' holds torch.int32"),
        # its scales would stand beside it, and without them it is a matrix of other numbers
        (lambda t: t | {A_TENSOR: t[A_TENSOR].to(torch.float8_e4m3fn)}, f"'{A_TENSOR}' holds torch.float8_e4m3fn"),
        (lambda t: {k: v for k, v in t.items() if "embed" not in k}, "'model.embed_tokens.weight' is missing"),
        (poison(A_TENSOR, float("nan")), f"tensor '{A_TENSOR}' holds NaN or infinity"),
        (poison("model.norm.weight", float("inf")), "tensor 'model.norm.weight' holds NaN or infinity"),
    ],
)
def test_each_faulty_tensor_is_named(tmp_path: Path, change: Callable[[Tensors], Tensors], says: str) -> None:
    write_tiny_weights(tmp_path)
    rewrite(tmp_path, change)
    with pytest.raises(CheckpointError) as caught:
        load_hybrid(tmp_path)
    assert says in str(caught.value)


def test_an_untied_model_needs_its_head(tmp_path: Path) -> None:
    write_tiny_weights(tmp_path, tie_word_embeddings=False)
    rewrite(tmp_path, lambda t: {k: v for k, v in t.items() if k != "lm_head.weight"})
    with pytest.raises(CheckpointError, match=r"lm_head\.weight"):
        load_hybrid(tmp_path)


def test_pickles_are_refused(tmp_path: Path) -> None:
    write_tiny_weights(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"safetensors only; the folder holds pytorch_model\.bin"):
        load_hybrid(tmp_path)


def test_no_weights_at_all(tmp_path: Path) -> None:
    write_tiny_weights(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="holds no"):
        load_hybrid(tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write_tiny_weights(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is no readable"):
        load_hybrid(tmp_path)


def index(folder: Path, weight_map: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize(
    ("weight_map", "says"),
    [
        ({"a": "model-00001-of-00002.safetensors"}, "'model-00001-of-00002.safetensors' is missing"),
        ({"a": "../elsewhere.safetensors"}, "names a file outside the folder"),
        ({"a": "/etc/passwd"}, "names a file outside the folder"),
        ({"a": ".."}, "'..' is missing"),
        ({"a": 5}, "names a file outside the folder"),
        ({"a": [5]}, "is no index"),
        ([1], "is no index"),
    ],
)
def test_index_faults(tmp_path: Path, weight_map: object, says: str) -> None:
    write_tiny_weights(tmp_path)
    index(tmp_path, weight_map)
    with pytest.raises(CheckpointError) as caught:
        load_hybrid(tmp_path)
    assert says in str(caught.value)


def test_an_index_nested_too_deeply(tmp_path: Path) -> None:
    write_tiny_weights(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("[" * 200_000)
    with pytest.raises(CheckpointError, match="is no index"):
        load_hybrid(tmp_path)


def test_saving_makes_the_folder(tmp_path: Path) -> None:
    save_hybrid(tiny_model(), tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b" / "config.json").is_file()
