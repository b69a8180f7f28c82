"""Texts that the teacher wrote -> token arrays of both models, and which of them make a step."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mainspring.train.arrays import Array, Ragged
from mainspring.train.distill.generate import Chat
from mainspring.train.distill.vocabulary import Aligned, Turn, Vocabulary
from mainspring.train.splits import TRAIN

ROUND, WIDTH = 8, 32  # what widths are multiples of: beside the student's, and the student's


def save_chats(chats: Sequence[Chat], path: Path) -> None:
    """Written aside and moved: a shard is there whole or not at all."""
    turns = Ragged.of([turn.tokens for chat in chats for turn in chat.turns], np.uint16)
    aside = path.with_suffix(".new.npz")
    np.savez_compressed(
        aside,
        tokens=turns.values,
        turns=turns.lengths.astype(np.uint16),
        chats=np.array([len(chat.turns) for chat in chats], np.uint8),
        split=np.array([chat.split for chat in chats], np.int8),
    )
    aside.replace(path)


def load_chats(path: Path) -> list[Chat]:
    with np.load(path) as found:
        ends, tokens = np.cumsum(found["turns"].astype(np.int64)), found["tokens"]
        counts, splits = found["chats"].tolist(), found["split"].tolist()
    texts = [part.tolist() for part in np.split(tokens, ends[:-1])] if len(ends) else []
    chats, at = [], 0
    for count, split in zip(counts, splits, strict=True):
        roles = ("user", "assistant") * (count // 2 + 1)
        chats.append(Chat(tuple(Turn(roles[i], texts[at + i]) for i in range(count)), split))
        at += count
    return chats


class Arrays(NamedTuple):
    """Padded arrays of one step, as `losses.Texts` has them."""

    student: Array
    lengths: Array
    teacher: Array
    places: Array
    weight: Array


@dataclass(frozen=True)
class Corpus:
    """Chats of at most `limit` student tokens."""

    aligned: Aligned
    split: Array
    end: int

    @classmethod
    def of(cls, chats: Sequence[Chat], vocabulary: Vocabulary, hidden: Sequence[Turn], limit: int) -> "Corpus":
        aligned = vocabulary.aligned([chat.turns for chat in chats], hidden)
        fits = aligned.student.lengths <= limit
        split = np.array([chat.split for chat in chats], np.int8)
        return cls(Aligned(*(_kept(part, fits) for part in aligned)), split[fits], vocabulary.end)

    def arrays(self, chats: Array, asked: float) -> Arrays:
        """Chats by number, -1: one that counts for nothing. `asked` is the weight of the user's tokens."""
        there, chats = chats >= 0, np.maximum(chats, 0)
        a = self.aligned
        lengths = a.student.lengths[chats]
        width = int(_widths(lengths).max())
        student = a.student.padded(chats, width, 0)
        reply = a.reply.padded(chats, width, 0)
        inside = np.arange(width) < lengths[:, None] - 1
        weight = np.where(reply > 0, 1.0, asked) * (inside & (student != self.end) & there[:, None])
        return Arrays(
            student, lengths, a.teacher.padded(chats, width + self.beside, 0), a.places.padded(chats, width, -1),
            weight.astype(np.float32),
        )  # fmt: skip

    @cached_property
    def beside(self) -> int:
        """How many tokens longer than the student's the teacher's text can be."""
        most = int((self.aligned.teacher.lengths - self.aligned.student.lengths).max(initial=0))
        return -(-max(0, most) // ROUND) * ROUND

    def epoch(self, number: int, *, seed: int, tokens: int) -> list[Array]:
        """Batches of training chats of like length, about `tokens` padded tokens each, in the order they run."""
        rng = np.random.default_rng([seed, number])
        chosen = rng.permutation(np.flatnonzero(self.split == TRAIN))
        widths = _widths(self.aligned.student.lengths[chosen])
        plans = []
        for width in np.unique(widths):
            like = chosen[widths == width]
            size = max(1, tokens // int(width))
            for start in range(0, len(like), size):
                part = like[start : start + size]
                plans.append(np.concatenate([part, np.full(size - len(part), -1)]))
        return [plans[i] for i in rng.permutation(len(plans))]


def _kept(part: Ragged, rows: Array) -> Ragged:
    lengths = part.lengths
    starts = np.concatenate([[0], np.cumsum(lengths[rows])]).astype(np.int64)
    return Ragged(part.values[np.repeat(rows, lengths)], starts)


def _widths(lengths: Array) -> Array:
    """Of the padded arrays. Each is a recorded step of its own, and a padded token costs what a real one does; on a
    finer grid the recurrence, which runs in chunks of 64, would gain nothing."""
    found: Array = -(-lengths // WIDTH) * WIDTH
    return found
