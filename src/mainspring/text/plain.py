"""tokenizer.json without its control tokens, so that no text whatsoever encodes to one.

*Control* is every added token that is `special`, and every other added token that is not pure whitespace: a template
places those, text never does. Source: the layout of Hugging Face's `tokenizers` documents.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from mainspring.errors import TokenizerError


def without_surrogates(text: str) -> str:
    """`text` with lone surrogates, which UTF-8 has no bytes for, as U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


@dataclass(frozen=True)
class Control:
    """A control token. `lstrip` and `rstrip`: it swallows the whitespace on that side, as its tokenizer would.
    `special`: what a model writes with it is no text; tags (`<think>`) are."""

    text: str
    id: int
    lstrip: bool = False
    rstrip: bool = False
    special: bool = True


@dataclass(frozen=True)
class Parts:
    """`plain` is the document to encode text with; `size` the largest id + 1; `unknown` the id of the unk token.
    `byte_level`: its tokens are bytes, each written as a printable letter."""

    plain: bytes
    control: tuple[Control, ...]
    size: int
    unknown: int | None
    byte_level: bool


def split_document(raw: bytes, where: str) -> Parts:
    """Takes a tokenizer.json apart. TokenizerError names `where` when it is not one."""
    try:
        document: Any = msgspec.json.decode(raw)
        model: dict[str, Any] = document["model"]
        added: list[dict[str, Any]] = document.get("added_tokens") or []
        control = tuple(_control(token) for token in added if is_control(token))
        kept = [token for token in added if token["content"] and not is_control(token)]
        vocabulary = dict(_vocabulary(model["vocab"]))
        size = 1 + max(max(vocabulary.values()), max((token["id"] for token in added), default=0))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise TokenizerError(f"{where} is not a tokenizer document: {type(error).__name__}: {error}") from None
    except RecursionError:
        raise TokenizerError(f"{where} is nested too deeply") from None
    unk = model.get("unk_token")
    if isinstance(model["vocab"], dict):
        for token in control:
            if token.text != unk:
                vocabulary.pop(token.text, None)
        # The reader gives an added token that the model does not know the next free id, not the one written beside it.
        vocabulary.update((token["content"], token["id"]) for token in kept)
        model = {**model, "vocab": vocabulary}
    stripped = {"added_tokens": kept, "post_processor": None, "truncation": None, "padding": None}
    plain = msgspec.json.encode({**document, "model": model, **stripped})
    unknown = vocabulary.get(unk) if isinstance(unk, str) else model.get("unk_id")
    decoder = document.get("decoder")
    byte_level = isinstance(decoder, dict) and decoder.get("type") == "ByteLevel"
    return Parts(plain, tuple(token for token in control if token.id != unknown), size, unknown, byte_level)


def byte_letters() -> dict[str, int]:
    """The printable stand-in of every byte in byte-level vocabularies, and the byte it stands for."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


def is_control(token: dict[str, Any]) -> bool:
    content: str = token["content"]
    return bool(content) and (bool(token.get("special")) or not content.isspace())


def _control(token: dict[str, Any]) -> Control:
    sides = bool(token.get("lstrip")), bool(token.get("rstrip"))
    return Control(token["content"], token["id"], *sides, special=bool(token.get("special")))


def _vocabulary(vocab: Any) -> Any:
    """Token to id pairs: a mapping for BPE and word models, a list of (token, score) for unigram ones."""
    return vocab.items() if isinstance(vocab, dict) else ((entry[0], index) for index, entry in enumerate(vocab))
