"""Teacher tokens as runs of student tokens, chats in both layouts, and where the two stand at the same place.

The student's BPE is the teacher's, cut at a rank. A merge above the cut only ever joins tokens that the cut leaves, so
the student's tokens of a text are those of each teacher token, one after another. Where a teacher token ends, both
models stand at one place of the text, and the teacher's distribution over its tokens is one over the student's: each
counts for the student token that it begins with.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mainspring.text.tokenizer import Tokenizer
from mainspring.train.arrays import Array, Ragged
from mainspring.train.gguf import Gguf

NONE = -1
ROLES = ("system", "user", "assistant")
CONTROL_KIND = 3  # of `tokenizer.ggml.token_type`
_BEYOND_ASCII = "\u2018\u2019\u201c\u201d\u2013\u2014\u2026"  # that English text has too
_CODE = "`{}<>\\|^~_"  # what program text has and plain English has not
OPEN, CLOSE = "<|im_start|>", "<|im_end|>"
_MARKS = (*ROLES, "end")  # control tokens of the student's template
MOST_TOKENS = 1 << 16  # of either vocabulary: texts are kept as uint16


class Turn(NamedTuple):
    """`tokens` are the teacher's, of the text alone."""

    role: str
    tokens: Sequence[int]


class Aligned(NamedTuple):
    """Chats. `places` of a student token: where in its chat the teacher stands when the student has read it; NONE
    inside a teacher token and after a turn's end. `reply`: whether the assistant's text or its end follows."""

    teacher: Ragged  # uint16
    student: Ragged  # uint16
    places: Ragged  # int16, of the student's tokens
    reply: Ragged  # bool, likewise


@dataclass(frozen=True)
class Vocabulary:
    """`pieces` are each teacher token's student tokens; `first` [teacher vocab] is the first of them, NONE for control
    tokens other than the one that ends a turn."""

    pieces: tuple[tuple[int, ...], ...]
    first: Array
    english: Array  # [teacher vocab] whether a token holds nothing but characters of English text
    size: int  # of the student's
    opening: dict[str, tuple[int, ...]]  # teacher tokens that open a turn
    close: tuple[int, ...]  # and that end it: the control token and a line break
    roles: dict[str, int]  # student's control token of a role
    end: int
    words: dict[str, int]  # the student's ordinary tokens as the BPE spells them
    control: dict[str, int]  # and its control tokens

    @classmethod
    def of(cls, source: Gguf, tokenizer: Tokenizer) -> "Vocabulary":
        """ValueError where the student's vocabulary is no cut of the teacher's."""
        names, kinds = token_kinds(source)
        ids = {name: number for number, name in enumerate(names)}
        own = _words(tokenizer)
        pieces: list[tuple[int, ...]] = [(own[name],) if name in own else () for name in names]
        for left, right in source.pairs():
            made = ids[left + right]
            if not pieces[made]:
                pieces[made] = pieces[ids[left]] + pieces[ids[right]]
        empty = [n for n, run, kind in zip(names, pieces, kinds, strict=True) if not run and kind != CONTROL_KIND]
        if empty:
            raise ValueError(f"the student's vocabulary has no tokens for {empty[0]!r} ({len(empty)} like it)")
        marks = {_as_bytes(byte) for byte in _BEYOND_ASCII.encode()}
        allowed = {
            *(c for c in map(chr, range(33, 127)) if c not in _CODE),
            *(_as_bytes(byte) for byte in b" \n\t"),
            *marks,
        }
        for name, known in ((OPEN, ids), (CLOSE, ids), ("Ċ", ids), *((f"<|{r}|>", tokenizer.control) for r in _MARKS)):
            if name not in known:
                raise ValueError(f"the {'teacher' if known is ids else 'student'}'s vocabulary has no {name!r}")
        end = tokenizer.control["<|end|>"]
        first = np.array([run[0] if run else NONE for run in pieces], np.int32)
        first[ids[CLOSE]] = end
        line = ids["Ċ"]
        spelled = {role: _spell(role, ids, source) for role in ROLES}
        return cls(
            tuple(pieces), first, np.array([set(name) <= allowed for name in names]), tokenizer.vocab_size,
            opening={role: (ids[OPEN], *spelled[role], line) for role in ROLES},
            close=(ids[CLOSE], line),
            roles={role: tokenizer.control[f"<|{role}|>"] for role in ROLES},
            end=end,
            words=own,
            control=dict(tokenizer.control),
        )  # fmt: skip

    def aligned(self, chats: Sequence[Sequence[Turn]], hidden: Sequence[Turn] = ()) -> Aligned:
        """Many chats at once; `hidden` turns come first in each and only the teacher sees them."""
        table, silent = self._table, len(self.pieces) + len(self.roles) + 1
        before = [t for turn in hidden for t in (*self.opening[turn.role], *turn.tokens, *self.close)]
        teacher: list[list[int]] = []
        runs: list[list[int]] = []  # the row of `table` that each teacher token stands for
        owned: list[list[bool]] = []
        for turns in chats:
            text, run, own = list(before), [silent] * len(before), [False] * len(before)
            for turn in turns:
                opening, role = self.opening[turn.role], list(self.roles).index(turn.role)
                text += [*opening, *turn.tokens, *self.close]
                run += [*[silent] * (len(opening) - 1), len(self.pieces) + role, *turn.tokens, silent - 1, silent]
                mine = turn.role == "assistant"
                own += [*[mine] * (len(opening) + len(turn.tokens)), False, False]
            teacher.append(text)
            runs.append(run)
            owned.append(own)
        spoken = Ragged.of(teacher, np.uint16)
        row = Ragged.of(runs, np.int64).values
        count = table.lengths[row]
        last = np.cumsum(count) - 1
        student = table.values[np.repeat(table.starts[row] - last + count - 1, count) + np.arange(count.sum())]
        at = np.arange(len(row)) - np.repeat(spoken.starts[:-1], spoken.lengths)
        places = np.full(len(student), NONE, np.int16)
        stands = (count > 0) & (row != silent - 1)  # what follows a turn's end is the template's choice
        places[last[stands]] = at[stands]
        starts = np.concatenate([[0], np.cumsum(count)])[spoken.starts].astype(np.int64)
        reply = np.repeat(Ragged.of(owned, bool).values, count)
        return Aligned(spoken, Ragged(student.astype(np.uint16), starts), Ragged(places, starts), Ragged(reply, starts))

    @cached_property
    def _table(self) -> Ragged:
        """Pieces of every teacher token; then of a turn's opening by role, of its end, of what the student lacks."""
        return Ragged.of([*self.pieces, *((token,) for token in self.roles.values()), (self.end,), ()], np.int64)


class Marginal(torch.nn.Module):
    """The teacher's logits -> probabilities of the student's tokens."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        first = torch.from_numpy(vocabulary.first.astype(np.int64))
        self.size = vocabulary.size
        self.first: Tensor
        self.known: Tensor
        self.register_buffer("first", first.clamp(min=0))
        self.register_buffer("known", first >= 0)

    def forward(self, logits: Tensor) -> Tensor:
        """fp32 [n, teacher vocab] -> [n, student vocab], rows sum to 1."""
        p = logits.float().masked_fill(~self.known, float("-inf")).softmax(-1)
        return p.new_zeros(len(p), self.size).index_add_(1, self.first, p)


def token_kinds(source: Gguf) -> tuple[list[str], list[int]]:
    """(tokens, the kind of each). ValueError where they are not as many, or too many to be kept."""
    names, kinds = source.strings("tokenizer.ggml.tokens"), source.field("tokenizer.ggml.token_type", list)
    if len(names) != len(kinds) or len(set(names)) != len(names) or not 0 < len(names) <= MOST_TOKENS:
        raise ValueError(
            f"{source.path.name}: {len(names):,} tokens of {len(kinds):,} kinds; wanted are 1 to {MOST_TOKENS:,} "
            "distinct tokens with a kind each"
        )
    return names, kinds


def _as_bytes(byte: int) -> str:
    """How byte-level BPE writes a byte: printable ones as they are, the others from U+0100 on in their order."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return chr(byte if byte in shown else 256 + sum(b not in shown for b in range(byte)))


def _words(tokenizer: Tokenizer) -> dict[str, int]:
    """Ordinary tokens as the BPE spells them."""
    model = json.loads(tokenizer.document)["model"]
    return {name: int(number) for name, number in model["vocab"].items() if name not in tokenizer.control}


def _spell(word: str, ids: dict[str, int], source: Gguf) -> tuple[int, ...]:
    """A word's tokens by the merges alone: role names need no tokenizer of the teacher's."""
    ranks = {f"{a} {b}": number for number, (a, b) in enumerate(source.pairs())}
    parts = list(word)
    while len(parts) > 1:
        rank, at = min((ranks.get(f"{a} {b}", len(ranks)), i) for i, (a, b) in enumerate(pairwise(parts)))
        if rank == len(ranks):
            break
        parts[at : at + 2] = ["".join(parts[at : at + 2])]
    return tuple(ids[part] for part in parts)


def teacher_tokenizer(source: Gguf) -> Tokenizer:
    """The teacher's own, control tokens apart."""
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Plain

    names, kinds = token_kinds(source)
    pairs = source.pairs()
    made = Plain(models.BPE(vocab={name: number for number, name in enumerate(names)}, merges=pairs))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    control = [name for name, kind in zip(names, kinds, strict=True) if kind == CONTROL_KIND]
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in control])
    return Tokenizer(json.dumps(json.loads(made.to_str())).encode(), where=source.path.name, fast=False)
