"""Hybrid -> checkpoint folder in the standard text-only layout, which `loading` and other libraries read."""

import json
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from safetensors.torch import save_file
from torch import Tensor

from mainspring.model.config import HybridConfig
from mainspring.model.hybrid import Block, GatedDeltaNet, Hybrid
from mainspring.model.mtp import MtpHead

Network = TypeVar("Network", Hybrid, MtpHead)


def save_hybrid(model: Hybrid, folder: Path, mtp: MtpHead | None = None) -> None:
    """Write `config.json` and `model.safetensors`; the folder is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    heads = {"mtp_num_hidden_layers": 1} if mtp is not None else {}
    (folder / "config.json").write_text(json.dumps(config_json(model.config) | heads, indent=2) + "\n", "utf-8")
    named = _tensors(model) | (_mtp(mtp) if mtp is not None else {})
    tensors = {name: tensor.detach().contiguous() for name, tensor in named.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def config_json(config: HybridConfig) -> dict[str, Any]:
    c = config
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_hidden_layers": c.num_layers,
        "layer_types": list(c.layer_types),
        "num_attention_heads": c.num_attention_heads,
        "num_key_value_heads": c.num_key_value_heads,
        "head_dim": c.head_dim,
        "linear_num_key_heads": c.linear_num_key_heads,
        "linear_num_value_heads": c.linear_num_value_heads,
        "linear_key_head_dim": c.linear_key_head_dim,
        "linear_value_head_dim": c.linear_value_head_dim,
        "linear_conv_kernel_dim": c.linear_conv_kernel_dim,
        "rms_norm_eps": c.rms_norm_eps,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": c.rope_theta,
            "partial_rotary_factor": c.rotary_dim / c.head_dim,
        },
        "tie_word_embeddings": c.tie_word_embeddings,
        "max_position_embeddings": c.max_position_embeddings,
        "hidden_act": "silu",
        "eos_token_id": list(c.eos_token_ids) or None,
        "dtype": "float32",
    }


def _tensors(model: Hybrid) -> dict[str, Tensor]:
    tensors = {"model.embed_tokens.weight": model.embed.weight, "model.norm.weight": model.norm.weight}
    if not model.config.tie_word_embeddings:
        tensors["lm_head.weight"] = model.head.weight
    for i, block in enumerate(model.blocks):
        named = _block(cast(Block, block))
        tensors |= {f"model.layers.{i}.{name}": tensor for name, tensor in named.items()}
    return tensors


def _mtp(head: MtpHead) -> dict[str, Tensor]:
    layer = _block(cast(Block, head.blocks[0]))
    return {
        "mtp.fc.weight": head.fc.weight,
        "mtp.pre_fc_norm_embedding.weight": head.embedding_norm.weight,
        "mtp.pre_fc_norm_hidden.weight": head.hidden_norm.weight,
        "mtp.norm.weight": head.norm.weight,
    } | {f"mtp.layers.0.{name}": tensor for name, tensor in layer.items()}


def _block(block: Block) -> dict[str, Tensor]:
    gate, up = block.mlp.gate_up_proj.weight.chunk(2)
    named = {
        "input_layernorm.weight": block.mixer_norm.weight,
        "post_attention_layernorm.weight": block.mlp_norm.weight,
        "mlp.gate_proj.weight": gate,
        "mlp.up_proj.weight": up,
        "mlp.down_proj.weight": block.mlp.down_proj.weight,
    }
    mixer = block.mixer
    if isinstance(mixer, GatedDeltaNet):
        qkv, z, b, a = mixer.in_proj.weight.split(mixer.in_proj.sizes)
        inputs = {
            f"linear_attn.in_proj_{name}.weight": part
            for name, part in zip(("qkv", "z", "b", "a"), (qkv, z, b, a), strict=True)
        }
        return (
            named
            | inputs
            | {
                "linear_attn.conv1d.weight": mixer.conv[:, None],
                "linear_attn.A_log": mixer.A_log,
                "linear_attn.dt_bias": mixer.dt_bias,
                "linear_attn.norm.weight": mixer.norm,
                "linear_attn.out_proj.weight": mixer.out_proj.weight,
            }
        )
    k, v = mixer.kv_proj.weight.chunk(2)
    return named | {
        "self_attn.q_proj.weight": mixer.q_proj.weight,
        "self_attn.k_proj.weight": k,
        "self_attn.v_proj.weight": v,
        "self_attn.o_proj.weight": mixer.o_proj.weight,
        "self_attn.q_norm.weight": mixer.q_norm.weight,
        "self_attn.k_norm.weight": mixer.k_norm.weight,
    }


def initialise(model: Network, seed: int, *, std: float = 0.02) -> Network:
    """Fill every parameter with the family's usual random start; same seed, same numbers. Returns the model."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                parameter.copy_(torch.empty(parameter.shape).uniform_(1, 16, generator=generator).log())
            elif name.endswith("dt_bias"):
                # softplus(dt_bias) spread over [1e-3, 1e-1]: memories from tens to thousands of tokens
                spread = torch.empty(parameter.shape).uniform_(-6.9, -2.3, generator=generator).exp()
                parameter.copy_(spread.expm1().log())
            elif parameter.dim() > 1:
                parameter.normal_(0.0, std if "conv" not in name else 0.3, generator=generator)
    return model
