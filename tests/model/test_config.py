import json
from pathlib import Path

import pytest

from mainspring.errors import CheckpointError
from mainspring.model.config import FULL, LINEAR, parse_config, read_config
from support.models import TINY


def test_defaults_and_wrapping() -> None:
    plain = parse_config(TINY)
    assert plain.layer_types == (LINEAR, LINEAR, LINEAR, FULL)
    assert plain.rotary_dim == 8
    assert plain.conv_dim == 2 * 32 + 96
    inner = {k: v for k, v in TINY.items() if k != "model_type"}
    wrapped = {"model_type": "qwen3_5", "text_config": inner, "vision_config": {"depth": 3}, "unknown": 1}
    assert parse_config(wrapped) == plain


def test_released_keys_are_read() -> None:
    config = parse_config(
        TINY
        | {"attn_output_gate": True, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1, "eos_token_id": [5, 6]}
    )
    assert config.eos_token_ids == (5, 6)
    assert parse_config(TINY | {"model_type": "qwen3_next"}).fused_layout


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_size": None}, "lacks 'hidden_size'"),
        ({"vocab_size": "many"}, "'vocab_size' must be a positive integer"),
        ({"num_hidden_layers": 0}, "'num_hidden_layers'"),
        ({"rms_norm_eps": -1}, "'rms_norm_eps'"),
        ({"model_type": "llama"}, "'llama' is not served"),
        ({"model_type": "qwen3_5_moe_text"}, "mixture-of-experts"),
        (
            {"num_experts": 64},
            "mixture-of-experts checkpoints are not served yet (model_type qwen3_5_text, num_experts 64)",
        ),
        ({"layer_types": ["full_attention"]}, "'layer_types' must list 4 layers"),
        ({"layer_types": ["mamba"] * 4}, "layer_types[0] is 'mamba'"),
        ({"num_key_value_heads": 3}, "'num_attention_heads' must be a multiple"),
        ({"linear_num_value_heads": 3}, "'linear_num_value_heads' must be a multiple"),
        ({"rope_parameters": {}}, "rope_theta"),
        ({"rope_parameters": {"rope_theta": 1e6, "rope_type": "yarn"}}, "'yarn' is not served"),
        ({"rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 2}}, "rotated dims"),
        ({"rope_parameters": {"rope_theta": float("nan")}}, "'rope_theta' must be a positive number, not nan"),
        ({"rope_parameters": {"rope_theta": float("inf")}}, "'rope_theta' must be a positive number"),
        ({"rope_parameters": {"rope_theta": "long"}}, "'rope_theta' must be a positive number, not 'long'"),
        ({"rope_parameters": {"rope_theta": 0}}, "'rope_theta' must be a positive number"),
        ({"rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": []}}, "'partial_rotary_factor' must be"),
        ({"rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": True}}, "'partial_rotary_factor' must be"),
        ({"num_hidden_layers": 10**9}, "1,000,000,000 layers, at most 1,024"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantised weights (fp8) are not served"),
        ({"quantization_config": "awq"}, "quantised weights (awq)"),
        ({"rope_parameters": "long"}, "'rope_parameters' must be an object"),
        ({"attn_output_gate": False}, "attn_output_gate"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "'gelu' is not served"),
        ({"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim"),
        ({"full_attention_interval": 0}, "full_attention_interval"),
    ],
)
def test_each_fault_is_named(changes: dict, says: str) -> None:
    raw = {k: v for k, v in (TINY | changes).items() if v is not None}
    with pytest.raises(CheckpointError) as caught:
        parse_config(raw)
    assert says in str(caught.value)


def test_a_dense_model_of_an_expert_family_is_served() -> None:
    parse_config(TINY | {"model_type": "qwen3_next", "num_experts": 8, "mlp_only_layers": [0, 1, 2, 3]})


def test_keys_that_older_and_wrapped_configs_keep_elsewhere() -> None:
    rope = {"rope_theta": 5e5, "partial_rotary_factor": 0.25}
    plain = {k: v for k, v in TINY.items() if k not in ("rope_parameters", "tie_word_embeddings")}
    older = parse_config(plain | rope)
    assert (older.rope_theta, older.rotary_dim) == (5e5, 4)
    assert parse_config(plain | rope | {"rope_scaling": None, "rope_parameters": {"rope_theta": 7}}).rope_theta == 7
    assert parse_config({k: v for k, v in TINY.items() if "position" not in k}).max_position_embeddings == 32_768
    outer = {"model_type": "qwen3_5", "tie_word_embeddings": True, "eos_token_id": 9}
    wrapped = parse_config(outer | {"text_config": plain | rope})
    assert wrapped.tie_word_embeddings
    assert wrapped.eos_token_ids == (9,)
    with pytest.raises(CheckpointError, match="quantised"):
        parse_config(outer | {"text_config": TINY, "quantization_config": {"quant_method": "fp8"}})


DEEP = '{"a":' + "[" * 200_000 + "]" * 200_000 + "}"


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "no config.json"), ("{", "as JSON"), ("[]", "no JSON object"), (DEEP, "nested too deeply")],
    ids=["missing", "cut", "list", "deep"],
)
def test_unreadable_files(tmp_path: Path, content: str | None, says: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointError) as caught:
        read_config(tmp_path)
    assert says in str(caught.value)


def test_config_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    assert read_config(tmp_path) == parse_config(TINY)
