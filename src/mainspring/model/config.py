"""The hybrid family's `config.json`: Qwen3.5 dense (wrapped or text-only), Qwen3-Next's layout, and our own saves.

Unknown keys are ignored; a missing one that matters, a contradiction or an architecture not served here is a
`CheckpointError` that names it. Source: the released configs and transformers' `configuration_qwen3_5.py` defaults.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mainspring.errors import CheckpointError

LINEAR, FULL = "linear_attention", "full_attention"
INT8_ROWS, INT4_GROUPS = "mainspring_int8_rows", "mainspring_int4_groups"  # our own schemes, see `quantised`
SUPPORTED = ("qwen3_5_text", "qwen3_next")
_WRAPPERS = {"qwen3_5": "qwen3_5_text"}
MAX_ROPE_NUMBER = 1e15
MAX_LAYERS = 1024  # of a config: ten times the deepest models, and no endless building of a hostile one
_EXPERT_KEYS = ("num_experts", "n_routed_experts", "num_local_experts")


@dataclass(frozen=True)
class HybridConfig:
    """Shapes of one model; names follow the checkpoints' config, sizes in elements."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layer_types: tuple[str, ...]
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_conv_kernel_dim: int
    rms_norm_eps: float
    rope_theta: float
    rotary_dim: int
    tie_word_embeddings: bool
    max_position_embeddings: int
    fused_layout: bool  # Qwen3-Next's in_proj_qkvz / in_proj_ba rows
    eos_token_ids: tuple[int, ...] = ()

    @property
    def num_layers(self) -> int:
        return len(self.layer_types)

    @property
    def key_dim(self) -> int:
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def value_dim(self) -> int:
        return self.linear_num_value_heads * self.linear_value_head_dim

    @property
    def conv_dim(self) -> int:
        return 2 * self.key_dim + self.value_dim


def read_config(folder: Path) -> HybridConfig:
    """`folder/config.json` -> HybridConfig. Raises CheckpointError."""
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{folder} holds no config.json, so it is no model folder") from None
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{path} can't be read as JSON: {error}") from None
    except RecursionError:
        raise CheckpointError(f"{path} is nested too deeply") from None
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} holds no JSON object")
    return parse_config(raw)


def parse_config(raw: dict[str, Any]) -> HybridConfig:
    """The decoded JSON of a config -> HybridConfig; a wrapper's `text_config` is taken where there is one."""
    text = _text_part(raw)
    read = _Reader(text, raw)
    layers = read.integer("num_hidden_layers")
    heads = read.integer("num_attention_heads")
    hidden = read.integer("hidden_size")
    rope = {**_mapping(text, "rope_scaling"), **_mapping(text, "rope_parameters")}
    head_dim = read.integer("head_dim", default=hidden // heads)
    partial = _rope_number(rope, text, "partial_rotary_factor", 0.25)
    _check_rope(rope)
    _check_gate(text)
    _check_numbers(text, raw)
    config = HybridConfig(
        vocab_size=read.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=read.integer("intermediate_size"),
        layer_types=_layer_types(text, layers),
        num_attention_heads=heads,
        num_key_value_heads=read.integer("num_key_value_heads"),
        head_dim=head_dim,
        linear_num_key_heads=read.integer("linear_num_key_heads"),
        linear_num_value_heads=read.integer("linear_num_value_heads"),
        linear_key_head_dim=read.integer("linear_key_head_dim"),
        linear_value_head_dim=read.integer("linear_value_head_dim"),
        linear_conv_kernel_dim=read.integer("linear_conv_kernel_dim", default=4),
        rms_norm_eps=read.number("rms_norm_eps", default=1e-6),
        rope_theta=_rope_number(rope, text, "rope_theta", None),
        rotary_dim=int(head_dim * partial),
        tie_word_embeddings=bool(text.get("tie_word_embeddings", raw.get("tie_word_embeddings", False))),
        max_position_embeddings=read.integer("max_position_embeddings", default=32768),
        fused_layout=text.get("model_type") == "qwen3_next",
        eos_token_ids=_eos(text, raw),
    )
    _check_shapes(config)
    return config


class _Reader:
    def __init__(self, text: dict[str, Any], raw: dict[str, Any]) -> None:
        self.text, self.raw = text, raw

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.text.get(key, default)
        if value is None:
            raise CheckpointError(f"config.json lacks {key!r}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise CheckpointError(f"config.json: {key!r} must be a positive integer, not {value!r:.60}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.text.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
            raise CheckpointError(f"config.json: {key!r} must be a number between 0 and 1, not {value!r:.60}")
        return float(value)


def _text_part(raw: dict[str, Any]) -> dict[str, Any]:
    kind = raw.get("model_type")
    text = raw
    if isinstance(raw.get("text_config"), dict):
        text = raw["text_config"]
        kind = text.get("model_type", _WRAPPERS.get(str(kind), kind))
    kind = _WRAPPERS.get(str(kind), kind)
    experts = [f"{key} {text[key]}" for key in _EXPERT_KEYS if text.get(key)]
    dense_layers = text.get("mlp_only_layers") or []
    if "moe" in str(kind) or (experts and len(dense_layers) != text.get("num_hidden_layers")):
        found = ", ".join([f"model_type {kind}", *experts])
        raise CheckpointError(f"mixture-of-experts checkpoints are not served yet ({found})")
    if kind not in SUPPORTED:
        raise CheckpointError(f"model_type {kind!r} is not served; known: {', '.join((*_WRAPPERS, *SUPPORTED))}")
    return {**text, "model_type": kind}


def _mapping(text: dict[str, Any], key: str) -> dict[str, Any]:
    value = text.get(key) or {}
    if not isinstance(value, dict):
        raise CheckpointError(f"config.json: {key!r} must be an object")
    return value


def _layer_types(text: dict[str, Any], layers: int) -> tuple[str, ...]:
    if layers > MAX_LAYERS:
        raise CheckpointError(f"config.json: {layers:,} layers, at most {MAX_LAYERS:,} are read")
    types = text.get("layer_types")
    if types is None:
        interval = text.get("full_attention_interval", 4)
        if not isinstance(interval, int) or interval < 1:
            raise CheckpointError("config.json: 'full_attention_interval' must be a positive integer")
        types = [FULL if (i + 1) % interval == 0 else LINEAR for i in range(layers)]
    if not isinstance(types, list) or len(types) != layers:
        raise CheckpointError(f"config.json: 'layer_types' must list {layers} layers")
    for i, kind in enumerate(types):
        if kind not in (LINEAR, FULL):
            raise CheckpointError(f"config.json: layer_types[{i}] is {kind!r:.60}; known: {LINEAR}, {FULL}")
    return tuple(types)


def _rope_number(rope: dict[str, Any], text: dict[str, Any], key: str, default: float | None) -> float:
    """A positive number of the rotary parameters, which older configs keep beside the sizes."""
    value = next((part[key] for part in (rope, text) if part.get(key) is not None), default)
    if value is None:
        raise CheckpointError(f"config.json lacks {key!r} (in rope_parameters)")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < MAX_ROPE_NUMBER:
        raise CheckpointError(f"config.json: {key!r} must be a positive number, not {value!r:.60}")
    return float(value)


def _check_rope(rope: dict[str, Any]) -> None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "mrope"):
        raise CheckpointError(f"config.json: rope_type {kind!r:.60} is not served; known: default")


def _check_gate(text: dict[str, Any]) -> None:
    if text.get("attn_output_gate") is False:
        raise CheckpointError("config.json: 'attn_output_gate' false is not served: these attention layers are gated")
    if text.get("attention_bias"):
        raise CheckpointError("config.json: 'attention_bias' true is not served")
    act = text.get("hidden_act", "silu")
    if act != "silu":
        raise CheckpointError(f"config.json: hidden_act {act!r:.60} is not served; known: silu")


def _check_numbers(text: dict[str, Any], raw: dict[str, Any]) -> None:
    """Quantised weights come with scales beside them; read as they stand, they would be other numbers."""
    for quantisation in (text.get("quantization_config"), raw.get("quantization_config")):
        if quantisation:
            method = quantisation.get("quant_method") if isinstance(quantisation, dict) else quantisation
            if method not in (INT8_ROWS, INT4_GROUPS):
                raise CheckpointError(
                    f"config.json: quantised weights ({method!s:.60}) are not served; take the originals"
                )


def _eos(text: dict[str, Any], raw: dict[str, Any]) -> tuple[int, ...]:
    value = text.get("eos_token_id", raw.get("eos_token_id"))
    values = value if isinstance(value, list) else [value]
    return tuple(v for v in values if isinstance(v, int))


def _check_shapes(config: HybridConfig) -> None:
    for many, few in (
        ("num_attention_heads", "num_key_value_heads"),
        ("linear_num_value_heads", "linear_num_key_heads"),
    ):
        if getattr(config, many) % getattr(config, few):
            raise CheckpointError(f"config.json: {many!r} must be a multiple of {few!r}")
    if not 0 < config.rotary_dim <= config.head_dim or config.rotary_dim % 2:
        raise CheckpointError(
            f"config.json: partial_rotary_factor gives {config.rotary_dim} rotated dims of {config.head_dim}"
        )
    if config.linear_conv_kernel_dim < 2:
        raise CheckpointError("config.json: 'linear_conv_kernel_dim' must be at least 2")
