"""One TOML file -> one frozen record; every key has a default but `out` and `teacher`.

out = "build/writer"          # run folder: texts, checkpoints, the model
teacher = "build/teacher"     # folder of the teacher's packed parts, or its GGUF file
sources = "data/sources"      # archives, as shipped
[shape]                       # of the student
[writing]                     # how much text the teacher writes, and how
[training]                    # length, rates, losses
"""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mainspring.errors import InputError
from mainspring.train.config import Pace, check_limits, check_pace, read_table


@dataclass(frozen=True)
class WriterShape:
    hidden_size: int = 384
    intermediate_size: int = 1024
    num_hidden_layers: int = 8
    attention_every: int = 4  # layer of full attention, the others are GatedDeltaNet
    num_attention_heads: int = 6
    num_key_value_heads: int = 2
    linear_heads: int = 6
    context: int = 2048  # positions
    from_layers: bool = False  # whether layers start from the teacher's; embeddings do in any case


@dataclass(frozen=True)
class Writing:
    chats: int = 600_000  # asked for; about five in ten are kept
    invented: float = 0.6  # share of them whose prompt the teacher writes too
    per_shard: int = 100_000  # a shard ends with rows that idle
    rows: int = 4096  # texts at once: 37 GB of keys and values
    capacity: int = 384  # teacher tokens of a chat with everything
    most_asked: int = 60  # tokens of a prompt the teacher wrote
    most_answered: int = 208  # tokens of an answer
    follow: float = 0.15  # share of replies that get a second question
    temperature: float = 0.8
    least: float = 0.05  # of the likeliest token's probability
    share: float = 1.0  # of the shipped conversations
    system: str = "You are a helpful assistant. Answer in plain English, in a few sentences."
    seed: int = 0


@dataclass(frozen=True)
class Distilling(Pace):
    epochs: float = 4.0
    tokens: int = 32_768
    rate: float = 4e-3
    warmup: int = 100
    muon: bool = True
    keep_best: bool = True
    average: float = 0.998
    view_tokens: int = 448  # of a chat, in student tokens
    states: float = 1.0  # first weight of the states' loss; falls to 0 over the first third
    asked: float = 0.25  # weight of the user's tokens
    ahead: float = 0.3  # weight of the MTP head's loss
    rounding: float = 0.1  # last share of the training, in which matrices are rounded as they will be stored
    looks: int = 10
    look_chats: int = 256


@dataclass(frozen=True)
class DistillConfig:
    out: Path
    teacher: Path
    sources: Path = Path("data/sources")
    shape: WriterShape = field(default_factory=WriterShape)
    writing: Writing = field(default_factory=Writing)
    training: Distilling = field(default_factory=Distilling)


def read_distill(path: Path) -> DistillConfig:
    """Paths are relative to the working directory. InputError names the key at fault."""
    try:
        raw: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}", param="config") from None
    for name, what in (("out", "the run folder"), ("teacher", "the packed teacher or its GGUF file")):
        if not isinstance(raw.get(name), str):
            raise InputError(f"{path} lacks {name!r}, {what}", param="config")
    for name, kind in (("shape", WriterShape), ("writing", Writing), ("training", Distilling)):
        raw[name] = read_table(kind, raw.get(name, {}), name)
    for name in ("out", "teacher", "sources"):
        if name in raw:
            raw[name] = Path(raw[name])
    config: DistillConfig = read_table(DistillConfig, raw, "")
    _check(config)
    return config


def _check(config: DistillConfig) -> None:
    s, w, t = config.shape, config.writing, config.training
    limits = (
        ("shape.num_hidden_layers", s.num_hidden_layers, 1, 64),
        ("shape.hidden_size", s.hidden_size, 8, 8192),
        ("shape.intermediate_size", s.intermediate_size, 8, 65_536),
        ("shape.attention_every", s.attention_every, 1, 64),
        ("shape.num_attention_heads", s.num_attention_heads, 1, 256),
        ("shape.num_key_value_heads", s.num_key_value_heads, 1, 256),
        ("shape.linear_heads", s.linear_heads, 1, 256),
        ("shape.context", s.context, 64, 1 << 20),
        ("writing.chats", w.chats, 1, 10_000_000),
        ("writing.per_shard", w.per_shard, 1, 1_000_000),
        ("writing.rows", w.rows, 1, 65_536),
        ("writing.capacity", w.capacity, 32, 8192),
        ("writing.most_asked", w.most_asked, 4, 8192),
        ("writing.most_answered", w.most_answered, 4, 8192),
        ("writing.invented", w.invented, 0, 1),
        ("writing.temperature", w.temperature, 0.01, 10),
        ("writing.least", w.least, 0, 1),
        ("writing.follow", w.follow, 0, 1),
        ("writing.share", w.share, 0, 1),
        ("writing.seed", w.seed, 0, 1 << 31),
        ("training.rounding", t.rounding, 0, 1),
        ("training.view_tokens", t.view_tokens, 8, 1 << 20),
        ("training.asked", t.asked, 0, 100),
        ("training.ahead", t.ahead, 0, 100),
        ("training.states", t.states, 0, 100),
        ("training.look_chats", t.look_chats, 1, 100_000),
    )
    check_limits(limits)
    check_pace(t, looks=t.looks)
    if s.num_attention_heads % s.num_key_value_heads:
        raise InputError(
            f"{s.num_attention_heads} heads are no multiple of {s.num_key_value_heads} of keys",
            param="shape.num_attention_heads",
        )
