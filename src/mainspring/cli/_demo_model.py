"""A complete small model folder with random weights: bytes for tokens, ChatML turns, six hybrid layers.

Large enough that every part of the real path runs (both kinds of layers, grouped heads, tool calls in the template),
small enough to be made and to score in a second or two on any CPU.
"""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from mainspring.model.config import parse_config
from mainspring.model.hybrid import Hybrid
from mainspring.model.saving import initialise, save_hybrid

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
TEMPLATE = """\
{%- if tools %}
<|im_start|>system
Tools:
{% for tool in tools %}
{{ tool.function | tojson }}
{% endfor %}
<|im_end|>
{% endif %}
{%- for message in messages %}
<|im_start|>{{ 'user' if message.role == 'tool' else message.role }}
{% if message.role == 'tool' %}
<tool_response>
{{ message.content }}
</tool_response>
{%- else %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}
{{ '\\n' if message.content or not loop.first else '' }}<tool_call>
{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}
</tool_call>
{%- endfor %}
{%- endif %}
<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
"""
CONFIG = {
    "model_type": "qwen3_5_text",
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 6,
    "full_attention_interval": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 3,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "tie_word_embeddings": True,
    "max_position_embeddings": 32_768,
    "rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 0.5},
}


def write_demo_model(folder: Path, seed: int = 0) -> int:
    """Write all files of the model; returns its number of parameters."""
    tokenizer = byte_tokenizer()
    eos = tokenizer.token_to_id("<|im_end|>")
    config = parse_config({**CONFIG, "vocab_size": tokenizer.get_vocab_size(), "eos_token_id": eos})
    # Wider than the usual start, or all probabilities would be a third to two digits.
    model = initialise(Hybrid(config), seed, std=0.1)
    save_hybrid(model, folder)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}), "utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    return sum(parameter.numel() for parameter in model.parameters())


def byte_tokenizer() -> Tokenizer:
    """A token a byte, and the control tokens of ChatML."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in TAGS])
    return tokenizer
