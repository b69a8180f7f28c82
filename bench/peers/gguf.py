"""A hybrid network as a GGUF file of llama.cpp's `qwen35` layout: matrices of one type, vectors in fp32.

For comparing engines on equal weights, so the vocabulary is made up: token i has a name and no meaning. Format: GGUF 3
(a header, typed keys, tensor infos, then data in steps of 32 bytes). llama.cpp's norms multiply by what is stored, so
the 1 of (1 + w) is added here, and its decay is -exp(A_log) already.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from mainspring.model.config import FULL
from mainspring.model.hybrid import Hybrid

ALIGNMENT = 32
UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
KINDS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 30}
ARCHITECTURE = "qwen35"


def write_gguf(path: Path, model: Hybrid, *, matrices: str = "bf16") -> None:
    """Value heads as many as key heads: with more, llama.cpp wants them in another order."""
    keys, tensors = dict(_keys(model)), dict(_tensors(model, DTYPES[matrices]))
    with path.open("wb") as file:
        file.write(struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys)))
        for key, (kind, value) in keys.items():
            _string(file, key)
            file.write(struct.pack("<I", kind))
            _value(file, kind, value)
        offset = 0
        for name, tensor in tensors.items():
            _string(file, name)
            shape = tuple(reversed(tensor.shape))
            file.write(struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, KINDS[tensor.dtype], offset))
            offset += _padded(tensor.nbytes)
        file.write(bytes(-file.tell() % ALIGNMENT))
        for tensor in tensors.values():
            file.write(tensor.contiguous().view(torch.uint8).numpy().tobytes())
            file.write(bytes(-tensor.nbytes % ALIGNMENT))


def _keys(model: Hybrid) -> Iterator[tuple[str, tuple[int, Any]]]:
    c = model.config
    if c.linear_num_key_heads != c.linear_num_value_heads or c.linear_key_head_dim != c.linear_value_head_dim:
        raise ValueError("key and value heads of the linear layers have to be alike")
    pairs = c.rotary_dim // 2
    third = -(-pairs // 3)
    yield "general.architecture", (STRING, ARCHITECTURE)
    for name, value in {
        "block_count": len(c.layer_types), "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size, "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_attention_heads, "attention.head_count_kv": c.num_key_value_heads,
        "attention.key_length": c.head_dim, "attention.value_length": c.head_dim,
        "rope.dimension_count": c.rotary_dim, "ssm.conv_kernel": c.linear_conv_kernel_dim,
        "ssm.state_size": c.linear_key_head_dim, "ssm.group_count": c.linear_num_key_heads,
        "ssm.time_step_rank": c.linear_num_value_heads, "ssm.inner_size": c.value_dim,
        "full_attention_interval": c.layer_types.index(FULL) + 1, "vocab_size": c.vocab_size,
    }.items():  # fmt: skip
        yield f"{ARCHITECTURE}.{name}", (UINT32, value)
    yield f"{ARCHITECTURE}.attention.layer_norm_rms_epsilon", (FLOAT32, c.rms_norm_eps)
    yield f"{ARCHITECTURE}.rope.freq_base", (FLOAT32, c.rope_theta)
    yield f"{ARCHITECTURE}.rope.dimension_sections", (ARRAY, (INT32, [third, third, pairs - 2 * third, 0]))
    yield "tokenizer.ggml.model", (STRING, "gpt2")
    yield "tokenizer.ggml.pre", (STRING, "default")
    yield "tokenizer.ggml.tokens", (ARRAY, (STRING, [f"t{i}" for i in range(c.vocab_size)]))
    yield "tokenizer.ggml.token_type", (ARRAY, (INT32, [1] * c.vocab_size))
    yield "tokenizer.ggml.merges", (ARRAY, (STRING, ["t 0"]))
    yield "tokenizer.ggml.eos_token_id", (UINT32, c.vocab_size - 1)


def _tensors(model: Hybrid, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    def matrix(weight: torch.Tensor) -> torch.Tensor:
        return weight.detach().to(dtype)

    c = model.config
    yield "token_embd.weight", matrix(model.embed.weight)
    yield "output_norm.weight", _norm(model.norm.weight)
    if not c.tie_word_embeddings:
        yield "output.weight", matrix(model.head.weight)
    for index, block in enumerate(model.blocks):
        mixer: Any = block.mixer
        at = f"blk.{index}."
        yield at + "attn_norm.weight", _norm(block.mixer_norm.weight)
        yield at + "post_attention_norm.weight", _norm(block.mlp_norm.weight)
        if c.layer_types[index] == FULL:
            keys, values = mixer.kv_proj.weight.split(c.num_key_value_heads * c.head_dim)
            yield at + "attn_q.weight", matrix(mixer.q_proj.weight)
            yield at + "attn_k.weight", matrix(keys)
            yield at + "attn_v.weight", matrix(values)
            yield at + "attn_output.weight", matrix(mixer.o_proj.weight)
            yield at + "attn_q_norm.weight", _norm(mixer.q_norm.weight)
            yield at + "attn_k_norm.weight", _norm(mixer.k_norm.weight)
        else:
            qkv, z, b, a = mixer.in_proj.weight.split(mixer.in_proj.sizes)
            yield at + "attn_qkv.weight", matrix(qkv)
            yield at + "attn_gate.weight", matrix(z)
            yield at + "ssm_beta.weight", matrix(b)
            yield at + "ssm_alpha.weight", matrix(a)
            yield at + "ssm_conv1d.weight", mixer.conv.detach().float()
            yield at + "ssm_dt.bias", mixer.dt_bias.detach().float()
            yield at + "ssm_a", -mixer.A_log.detach().float().exp()
            yield at + "ssm_norm.weight", mixer.norm.detach().float()
            yield at + "ssm_out.weight", matrix(mixer.out_proj.weight)
        gate, up = block.mlp.gate_up_proj.weight.chunk(2)
        yield at + "ffn_gate.weight", matrix(gate)
        yield at + "ffn_up.weight", matrix(up)
        yield at + "ffn_down.weight", matrix(block.mlp.down_proj.weight)


def _norm(weight: torch.Tensor) -> torch.Tensor:
    return 1.0 + weight.detach().float()


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _string(file: BinaryIO, text: str) -> None:
    data = text.encode()
    file.write(struct.pack("<Q", len(data)) + data)


def _value(file: BinaryIO, kind: int, value: Any) -> None:
    if kind == STRING:
        _string(file, value)
    elif kind == ARRAY:
        inner, items = value
        file.write(struct.pack("<IQ", inner, len(items)))
        if inner == STRING:
            for item in items:
                _string(file, item)
        else:
            file.write(np.asarray(items, {INT32: "<i4", UINT32: "<u4", FLOAT32: "<f4"}[inner]).tobytes())
    else:
        file.write(struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f"}[kind], value))
