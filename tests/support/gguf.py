"""A tiny random llama model as a GGUF file, with the first tokens and merges of the shipped tokenizer."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from mainspring.train.skeleton import tokenizer_text

SOURCES = Path(__file__).parents[2] / "data" / "sources"
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
F32, Q4_1, Q8_0 = 0, 3, 8


def tiny_vocabulary(size: int) -> tuple[list[str], list[str]]:
    """(tokens, merges): control tokens, then the shipped BPE's first `size` tokens."""
    model = json.loads(tokenizer_text(SOURCES))["model"]
    words = sorted(model["vocab"], key=model["vocab"].get)[:size]
    known = set(words)
    merges = [pair for pair in model["merges"] if "".join(pair.split(" ")) in known]
    return [*CONTROL, *words], merges


def write_tiny_gguf(
    path: Path, *, size: int = 1500, width: int = 64, layers: int = 4, heads: int = 4, kv_heads: int = 2, seed: int = 0
) -> None:
    """Weights are drawn large enough that positions and heads matter."""
    tokens, merges = tiny_vocabulary(size)
    rng = np.random.default_rng(seed)
    head, inner = width // heads, 2 * width

    def drawn(rows: int, columns: int) -> np.ndarray:
        return rng.standard_normal((rows, columns)).astype(np.float32) * (1.5 / columns**0.5)

    embeddings = drawn(len(tokens), width)
    embeddings[CONTROL.index("<|im_end|>")] *= 3.5  # texts end now and then
    tensors = {"token_embd.weight": (Q8_0, embeddings), "output_norm.weight": (F32, _norm(rng, width))}
    for i in range(layers):
        shapes = {
            "attn_q": (heads * head, width), "attn_k": (kv_heads * head, width), "attn_v": (kv_heads * head, width),
            "attn_output": (width, heads * head), "ffn_gate": (inner, width), "ffn_up": (inner, width),
            "ffn_down": (width, inner),
        }  # fmt: skip
        tensors |= {f"blk.{i}.{name}.weight": (Q4_1, drawn(*shape)) for name, shape in shapes.items()}
        tensors |= {f"blk.{i}.{name}.weight": (F32, _norm(rng, width)) for name in ("attn_norm", "ffn_norm")}
    fields: dict[str, Any] = {
        "general.architecture": "llama",
        "llama.block_count": layers,
        "llama.embedding_length": width,
        "llama.feed_forward_length": inner,
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv_heads,
        "llama.rope.freq_base": 100000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(CONTROL) + [1] * (len(tokens) - len(CONTROL)),
        "tokenizer.ggml.merges": merges,
    }
    path.write_bytes(_document(fields, tensors))


def write_tiny_sources(folder: Path, size: int = 800) -> Path:
    """A sources folder with the tokenizer cut at `size`, and no archives."""
    document = json.loads(tokenizer_text(SOURCES))
    words, merges = tiny_vocabulary(size)
    document["model"]["vocab"] = {word: number for number, word in enumerate(words[len(CONTROL) :])}
    document["model"]["merges"] = merges
    for number, token in enumerate(document["added_tokens"]):
        token["id"] = size + number
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(json.dumps(document), "utf-8")
    return folder


def _norm(rng: np.random.Generator, width: int) -> np.ndarray:
    return 1 + 0.1 * rng.standard_normal(width).astype(np.float32)


def _document(fields: dict[str, Any], tensors: dict[str, tuple[int, np.ndarray]]) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    head += b"".join(_text(key) + _value(value) for key, value in fields.items())
    data = b""
    for name, (kind, values) in tensors.items():
        data += b"\0" * (-len(data) % 32)
        sizes = values.shape[::-1]
        head += _text(name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes) + struct.pack("<IQ", kind, len(data))
        data += packed(values, kind)
    return head + b"\0" * (-len(head) % 32) + data


def packed(values: np.ndarray, kind: int) -> bytes:
    """Blocks of 32 as the format has them."""
    if kind == F32:
        return values.astype("<f4").tobytes()
    blocks = values.reshape(-1, 32).astype(np.float32)
    if kind == Q8_0:
        scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype("<f2")
        steps = np.round(blocks / np.maximum(scale.astype(np.float32), 1e-9)).clip(-127, 127).astype("i1")
        return np.concatenate([scale.view("u1"), steps.view("u1")], 1).tobytes()
    least = blocks.min(1, keepdims=True).astype("<f2")
    scale = ((blocks.max(1, keepdims=True) - least) / 15).astype("<f2")
    steps = np.round((blocks - least) / np.maximum(scale.astype(np.float32), 1e-9)).clip(0, 15).astype("u1")
    nibbles = steps[:, :16] | steps[:, 16:] << 4
    return np.concatenate([scale.view("u1"), least.view("u1"), nibbles], 1).tobytes()


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    return struct.pack("<IIQ", 9, 4, len(value)) + struct.pack(f"<{len(value)}I", *value)
