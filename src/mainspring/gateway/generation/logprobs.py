"""Log-probabilities of tokens as OpenAI's two routes show them. Bytes of a token are the vocabulary's own."""

import math
from collections.abc import Sequence
from typing import Any

from mainspring.gateway.generation.choice import Token
from mainspring.text.tokenizer import Tokenizer

LEAST = -9999.0
"""JSON has no infinity."""


def chat_logprobs(tokens: Sequence[Token], tokenizer: Tokenizer) -> dict[str, Any]:
    content = []
    for token in tokens:
        top = [_entry(tokenizer, other, value) for other, value in token.top]
        content.append(_entry(tokenizer, token.id, token.logprob) | {"top_logprobs": top})
    return {"content": content, "refusal": None}


def completion_logprobs(tokens: Sequence[Token], tokenizer: Tokenizer, offset: int) -> tuple[dict[str, Any], int]:
    """(the record, the offset behind it): `text_offset` counts characters of tokens."""
    found: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for token in tokens:
        text = text_of(tokenizer, token.id)
        found["tokens"].append(text)
        found["token_logprobs"].append(finite(token.logprob))
        found["top_logprobs"].append({text_of(tokenizer, other): finite(value) for other, value in token.top})
        found["text_offset"].append(offset)
        offset += len(text)
    return found, offset


def text_of(tokenizer: Tokenizer, token: int) -> str:
    """Where a token is a part of a character, U+FFFD stands for it: `bytes` has it as it is."""
    return tokenizer.token_bytes(token).decode("utf-8", "replace")


def finite(value: float | None) -> float:
    return LEAST if value is None or not math.isfinite(value) else max(LEAST, value)


def _entry(tokenizer: Tokenizer, token: int, value: float | None) -> dict[str, Any]:
    return {
        "token": text_of(tokenizer, token), "logprob": finite(value), "bytes": list(tokenizer.token_bytes(token)),
    }  # fmt: skip
