"""Small random models for tests: the family's shapes with every head ratio, in milliseconds."""

from pathlib import Path
from typing import Any

import torch

from mainspring.model.config import HybridConfig, parse_config
from mainspring.model.hybrid import Hybrid, Ops
from mainspring.model.saving import initialise, save_hybrid

TINY: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "vocab_size": 300,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "tie_word_embeddings": True,
    "max_position_embeddings": 32768,
    "rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 0.5},
}


def tiny_config(**changes: Any) -> HybridConfig:
    return parse_config(TINY | changes)


def tiny_model(seed: int = 0, *, std: float = 0.15, ops: Ops | None = None, **changes: Any) -> Hybrid:
    """Weights large enough that logits differ by tenths between tokens, so that a mix-up shows."""
    model = initialise(Hybrid(tiny_config(**changes), ops), seed, std=std)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)))
    return model.eval().requires_grad_(False)


def write_tiny_weights(folder: Path, seed: int = 0, **changes: Any) -> Hybrid:
    model = tiny_model(seed, **changes)
    save_hybrid(model, folder)
    return model


def random_tokens(seed: int, *shape: int, vocab: int = 300) -> torch.Tensor:
    return torch.randint(0, vocab, shape, generator=torch.Generator().manual_seed(seed))
