"""Shapes that the benchmarks share, as the checkpoints' config files would say them."""

from typing import Any

SMALL_HYBRID: dict[str, Any] = {  # 53.8M parameters, 28.6M of them in the body
    "model_type": "qwen3_5_text",
    "vocab_size": 49_152,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "linear_num_key_heads": 8,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}


def _released(hidden: int, inner: int, layers: int, heads: tuple[int, int], linear: tuple[int, int]) -> dict[str, Any]:
    """A released dense size: head_dim 256, linear heads of 128."""
    return {
        "model_type": "qwen3_5_text",
        "vocab_size": 248_320,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "head_dim": 256,
        "linear_num_key_heads": linear[0],
        "linear_num_value_heads": linear[1],
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "tie_word_embeddings": True,
        "max_position_embeddings": 262_144,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    }


TINY: dict[str, Any] = {  # to try a script with: no figure of it says anything
    "model_type": "qwen3_5_text",
    "vocab_size": 24_000,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "tie_word_embeddings": True,
    "max_position_embeddings": 32_768,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.5},
}

CUDA_SHAPES = {
    "0.8B": _released(1024, 3584, 24, (8, 2), (16, 16)),
    "4B": _released(2560, 9216, 32, (16, 4), (16, 32)),
}
