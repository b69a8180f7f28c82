"""The network against transformers on random small models: at most 1e-4 of max |logit|, whole, chunked, incremental."""

import os
from pathlib import Path

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")

from mainspring.model.loading import load_hybrid  # noqa: E402
from support.models import random_tokens  # noqa: E402

SHAPES = {
    "wide": {
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 6,
    },
    "square": {
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 4,
    },
}
COMMON = {
    "vocab_size": 300,
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_hidden_layers": 8,
    "head_dim": 64,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 48,
    "initializer_range": 0.1,
}


def make(kind: str, shape: str, folder: Path, **changes):
    """A saved random model of the other library: (its model, our load of it)."""
    torch.manual_seed(0)
    if kind == "qwen3_5":
        rope = {
            "rope_type": "default",
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
            "mrope_section": [3, 3, 2],
            "mrope_interleaved": True,
        }
        config = transformers.Qwen3_5TextConfig(**COMMON | SHAPES[shape] | changes, rope_parameters=rope)
        model = transformers.Qwen3_5ForCausalLM(config)
    else:
        config = transformers.Qwen3NextConfig(
            **COMMON | SHAPES[shape] | changes, num_experts=0, decoder_sparse_step=1, mlp_only_layers=list(range(8))
        )
        model = transformers.Qwen3NextForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.eval().save_pretrained(folder)
    return model


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["qwen3_5", "qwen3_next"])
@pytest.mark.parametrize("tied", [False, True])
@torch.inference_mode()
def test_logits(kind: str, shape: str, tied: bool, tmp_path: Path) -> None:
    theirs = make(kind, shape, tmp_path, tie_word_embeddings=tied)
    ours = load_hybrid(tmp_path)
    for length in (1, 40, 150):
        tokens = random_tokens(length, length)
        wanted = theirs(tokens[None]).logits[0]
        scale = wanted.abs().max()

        def close(got: torch.Tensor) -> None:
            assert ((got - wanted).abs().max() / scale).item() < 1e-4  # noqa: B023

        close(ours.logits(ours.extend(tokens, [length], [ours.new_state()], update=True)))
        for step in (1, 64):
            state = ours.new_state()
            pieces = [ours.extend(p, [len(p)], [state], update=True) for p in tokens.split(step)]
            close(ours.logits(torch.cat(pieces)))


@torch.inference_mode()
def test_sharded_and_wrapped(tmp_path: Path) -> None:
    theirs = make("qwen3_5", "wide", tmp_path)
    theirs.save_pretrained(tmp_path / "sharded", max_shard_size="300KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 2
    tokens = random_tokens(3, 50)
    wanted = theirs(tokens[None]).logits[0]
    ours = load_hybrid(tmp_path / "sharded")
    got = ours.logits(ours.extend(tokens, [50], [ours.new_state()], update=True))
    assert ((got - wanted).abs().max() / wanted.abs().max()).item() < 1e-4


@torch.inference_mode()
def test_positions_far_from_the_start(tmp_path: Path) -> None:
    """Beyond 2,048, where numbers of half precision would no longer tell neighbours apart."""
    theirs = make("qwen3_5", "wide", tmp_path)
    ours = load_hybrid(tmp_path)
    tokens = random_tokens(1, 3001)
    wanted = theirs(tokens[None], logits_to_keep=1).logits[0]
    state = ours.new_state()
    for piece in tokens[:-1].split(1024):
        ours.extend(piece, [len(piece)], [state], update=True, outputs="none")
    got = ours.logits(ours.extend(tokens[-1:], [1], [state], [0], update=False, outputs="last"))
    assert ((got - wanted).abs().max() / wanted.abs().max()).item() < 1e-4
