"""Shapes that the CPU benchmarks share, as the checkpoints' config files would say them."""

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
