"""A complete small model folder: config, weights, tokenizer and templates that belong together."""

import json
from pathlib import Path
from typing import Any

from support.models import write_tiny_weights
from support.tiny_tokenizer import CHATML, tiny_tokenizer_json, write_tiny_tokenizer


def write_tiny_model(
    folder: Path,
    *,
    seed: int = 0,
    chat_template: str | None = CHATML,
    scoring: dict[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """Loadable by Scorer in milliseconds; `changes` go to the model's config. Returns `folder`."""
    write_tiny_weights(folder, seed, **{"vocab_size": tiny_vocab_size(), **changes})
    return write_tiny_tokenizer(folder, chat_template=chat_template, scoring=scoring)


def tiny_vocab_size() -> int:
    """As many ids as the tiny tokenizer has."""
    return 1 + max(token["id"] for token in json.loads(tiny_tokenizer_json())["added_tokens"])
