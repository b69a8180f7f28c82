"""A small byte-level BPE tokenizer and model folder, made in code in well under half a second."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
SENTENCES = (
    "Judge the conversation above for one behavior. Answer with one letter if it is present or absent.",
    "system user assistant tool The quick brown fox jumps over the lazy dog, 0123456789 times. Yes No AA AB AC",
    "You are a helpful assistant. What is the weather in Paris today? I don't know; let me look it up for you.",
    "def f(x):\n    return x + 1\n\nfor item in items:\n    print(item)\n",
)
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@cache
def tiny_tokenizer_json(vocab_size: int = 512) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=1,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in TAGS])
    return tokenizer.to_str()


def write_tiny_tokenizer(
    folder: Path | str,
    *,
    chat_template: str | None = CHATML,
    vocab_size: int = 512,
    scoring: dict[str, Any] | None = None,
    generation: dict[str, Any] | None = None,
) -> Path:
    """tokenizer.json, tokenizer_config.json, generation_config.json (with `generation` in it) and, where given, the
    templates. Returns `folder`; ids end at `vocab_size` + 8."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    document = tiny_tokenizer_json(vocab_size)
    (folder / "tokenizer.json").write_text(document, encoding="utf-8")
    ids = {token["content"]: token["id"] for token in json.loads(document)["added_tokens"]}
    config = {"eos_token": "<|im_end|>", "pad_token": {"content": "<|endoftext|>"}, "bos_token": None}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    eos = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": eos} | (generation or {})))
    if chat_template is not None:
        (folder / "chat_template.jinja").write_text(chat_template, encoding="utf-8")
    if scoring is not None:
        (folder / "scoring.json").write_text(json.dumps(scoring))
    return folder
