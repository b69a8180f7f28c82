"""Which rows make which step: a function of data, seed and epoch alone, so that a resumed run goes on as if never cut.

Most rows say that something common is absent, which is soon learned. So every epoch draws rows by *cell* (behavior,
label, group): all that say present, and of the rest about twice as many, up to `MOST` each; groups in `WHOLE` know no
such limits, and `DRAWN` takes its share of every group. Views with no row drawn wait for another epoch. A view draws a
cap on the length of its definitions, and wordings that fit: one long wording would pad a thousand short ones. Views of
like length, as many rows and one cap share a batch of about `tokens` padded tokens.
Batches come in few shapes, the same every epoch: what a GPU has once recorded it can replay.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mainspring.train.arrays import Array, Ragged, TrainingData
from mainspring.train.splits import TRAIN

CAPS, CAP_CHANCES = (24, 40, 96), (0.5, 0.4, 0.1)
FITTING = (0.6, 0.85, 1.0)  # shares of the wordings that fit at least: caps are raised where questions are longer
WIDTHS = np.array([32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536])  # of padded views, then multiples of 512
MOST, LEAST, BESIDE = 1500, 250, 2.0  # rows of a cell an epoch: limits, and how many for each one that says present
# Shares of what their cells would have drawn. That another trait is absent is likely anyhow; statements seen too often
# are learned by heart, and unseen families fall; seen too rarely, neither are learned (docs/scorer.md).
DRAWN = {"persona_other": 0.2, "persona_seen": 0.8, "persona_forms": 0.4, "attitudes": 0.6}
# Limits of single behaviors. Whether a word stands in a text is the plainest comparison of definition and view: what
# others build upon, and learned late or never where few rows ask for it.
MANY = {"reply_word": 20_000, "user_word": 20_000}
GROUP_WEIGHT = {"natural": 0.3}
WHOLE = ("attitudes",)  # groups without those limits: a cell of theirs holds thousands of behaviors, not one


class Step(NamedTuple):
    """Padded arrays of one step; `weight` 0 where a view has fewer rows than the batch is wide."""

    views: Array  # [B, T]
    view_lengths: Array
    branches: Array  # [B, N, L]
    branch_lengths: Array
    targets: Array  # [B, N, 3]
    weight: Array  # [B, N]


@dataclass(frozen=True)
class BatchPlan:
    """`views` [n] of one batch, their rows [n, N] (-1: none), and the widths both are padded to."""

    views: Array
    rows: Array
    width: int
    cap: int


class Batches:
    def __init__(
        self, data: TrainingData, *, seed: int, tokens: int, branches: int, smoothing: float = 0.02, hide: float = 0.0,
        pad: int = 0,
    ) -> None:  # fmt: skip
        self.data, self.seed, self.tokens, self.branches, self.pad = data, seed, tokens, branches, pad
        self.smoothing, self.hide = smoothing, hide
        self.edges = template_edges(data.definitions) if hide else (0, 0)
        self.rows = np.flatnonzero(data.rows.split == TRAIN)
        self.rows = self.rows[np.argsort(data.rows.view[self.rows], kind="stable")]
        self.views, self.first = np.unique(data.rows.view[self.rows], return_index=True)
        self.counts = np.diff(np.append(self.first, len(self.rows)))
        self.chance = self._chance()
        self._sort_wordings()
        weights = np.array([GROUP_WEIGHT.get(str(name), 1.0) for name in data.groups])
        self.row_weight = weights[data.rows.group].astype(np.float32)

    def _chance(self) -> Array:
        """How likely each training row is to be drawn in an epoch."""
        rows = self.data.rows
        behavior = base_numbers(self.data)[rows.behavior[self.rows]]
        present = np.bincount(behavior, rows.label[self.rows] == 0)[behavior]
        label, groups = rows.label[self.rows].astype(np.int64), len(self.data.groups)
        cell = (behavior * 3 + label) * groups + rows.group[self.rows]
        drawn = np.array([DRAWN.get(str(name), 1.0) for name in self.data.groups])[rows.group[self.rows]]
        most = np.array([MANY.get(str(name).partition(":")[0], MOST) for name in self.data.behaviors])
        most = most[rows.behavior[self.rows]]
        wanted = np.where(label == 0, most, np.clip(BESIDE * present, LEAST, most))
        whole = np.array([str(name) in WHOLE for name in self.data.groups])[rows.group[self.rows]]
        chance: Array = drawn * np.where(whole, 1.0, np.minimum(1.0, wanted / np.bincount(cell)[cell]))
        return chance

    def _sort_wordings(self) -> None:
        """A behavior's wordings by length, and how many of them fit under each cap."""
        words, lengths = self.data.wordings, self.data.definitions.lengths
        owner = np.repeat(np.arange(len(words.lengths)), words.lengths)
        order = np.lexsort((lengths[words.values], owner))
        self.sorted_wordings = words.values[order]
        size = lengths[self.sorted_wordings]
        usual = np.quantile(size, FITTING, method="higher")
        self.caps = [_rounded(max(cap, int(length)), 8) for cap, length in zip(CAPS, usual, strict=True)]
        self.fitting = {cap: np.bincount(owner[size <= cap], minlength=len(words.lengths)) for cap in self.caps}
        self.least = sum(
            (self.fitting[cap] == 0).astype(np.int64) for cap in self.caps[:-1]
        )  # place of the first that fits one

    def epoch(self, number: int) -> list[BatchPlan]:
        """Plans in the order they run."""
        rng = np.random.default_rng([self.seed, number])
        drawn = self._drawn(rng)
        many = (drawn >= 0).sum(1)
        rows = np.minimum(2 ** np.ceil(np.log2(np.maximum(many, 2))), self.branches).astype(np.int64)
        width = width_of(self.data.views.lengths[self.views])
        cap = np.maximum(rng.choice(len(self.caps), len(many), p=CAP_CHANCES), self._least_cap(drawn))
        order = np.lexsort((rng.random(len(many)), cap, rows, width))
        order = order[many[order] > 0]
        shape = np.stack([width, rows, cap])[:, order]
        cuts = np.flatnonzero((np.diff(shape) != 0).any(0)) + 1
        plans = [
            plan
            for like, (wide, many_rows, at) in zip(np.split(order, cuts), shape[:, [0, *cuts]].T.tolist(), strict=True)
            for plan in self._plans(like, drawn[:, :many_rows], wide, self.caps[at])
        ]
        return [plans[i] for i in rng.permutation(len(plans))]

    def _drawn(self, rng: np.random.Generator) -> Array:
        """[views, branches] row numbers, then -1; where more are drawn than fit, the likeliest ones give way."""
        lots = rng.random(len(self.rows))
        owner = np.repeat(np.arange(len(self.views)), self.counts)
        order = np.lexsort((self.chance + lots, lots >= self.chance, owner))
        rank = np.arange(len(order)) - np.repeat(self.first, self.counts)
        kept = (rank < self.branches) & (lots < self.chance)[order]
        drawn = np.full((len(self.views), self.branches), -1, np.int64)
        drawn[owner[kept], rank[kept]] = self.rows[order[kept]]
        return drawn

    def _least_cap(self, drawn: Array) -> Array:
        """For each view the place of the first cap that a wording of every row fits."""
        least = self.least[self.data.rows.behavior[np.maximum(drawn, 0)]]
        found: Array = np.where(drawn >= 0, least, 0).max(1)
        return found

    def _plans(self, like: Array, drawn: Array, width: int, cap: int) -> Iterator[BatchPlan]:
        """Batches of views of one shape; the last is filled up with rows that count for nothing."""
        size = max(1, self.tokens // (width + drawn.shape[1] * cap))
        for start in range(0, len(like), size):
            members = like[start : start + size]
            chosen = drawn[members]
            if start and len(members) < size:
                lacking = size - len(members)
                members = np.concatenate([members, like[:lacking]])
                chosen = np.concatenate([chosen, np.full((lacking, drawn.shape[1]), -1)])
            yield BatchPlan(self.views[members], chosen, width, cap)

    def step(self, plan: BatchPlan, number: int) -> Step:
        """The arrays of a plan; wordings are drawn by step number."""
        rng, rows = np.random.default_rng([self.seed, 1, number]), self.data.rows
        there = plan.rows >= 0
        row = np.maximum(plan.rows, 0)
        behavior = rows.behavior[row]
        fitting = self.fitting[plan.cap][behavior]
        pick = (rng.random(row.shape) * np.maximum(fitting, 1)).astype(np.int64)
        definition = self.sorted_wordings[self.data.wordings.starts[behavior] + pick]
        lengths = np.where(there, self.data.definitions.lengths[definition], 1)
        definition = np.where(there, definition, 0)
        padded = self.data.definitions.padded(definition.reshape(-1), plan.cap, self.pad).reshape(*row.shape, plan.cap)
        if self.hide:
            padded, lengths = self._thinned(padded, lengths, rng)
        return Step(
            self.data.views.padded(plan.views, plan.width, self.pad),
            self.data.views.lengths[plan.views],
            padded,
            lengths,
            self._targets(rows.label[row], rows.confidence[row]),
            np.where(there, self.row_weight[row], 0).astype(np.float32),
        )

    def _thinned(self, tokens: Array, lengths: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Tokens of a definition's own text left out by chance, never all of them; what follows moves up."""
        at, (first, last) = np.arange(tokens.shape[-1]), self.edges
        own = (at >= first) & (at < (lengths - last)[..., None])
        hidden = own & (rng.random(tokens.shape) < self.hide)
        hidden &= (hidden != own).any(-1, keepdims=True)
        kept = (at < lengths[..., None]) & ~hidden
        moved = np.take_along_axis(tokens, np.argsort(~kept, axis=-1, kind="stable"), -1)
        count = kept.sum(-1)
        return np.where(at < count[..., None], moved, self.pad), count

    def _targets(self, label: Array, confidence: Array) -> Array:
        """The label's share is how sure it is; present and absent are each other's alternative."""
        targets = np.eye(3, dtype=np.float32)[label]
        rest = (1 - confidence.astype(np.float32)) * (label < 2)
        targets[..., :2] += rest[..., None] * (np.eye(3, dtype=np.float32)[1 - np.minimum(label, 1)] - targets)[..., :2]
        return targets * (1 - self.smoothing) + self.smoothing / 3


def template_edges(definitions: Ragged) -> tuple[int, int]:
    """How many tokens all definitions begin and end with: the question's template and control tokens."""
    shortest, values = min(definitions.lengths.tolist(), default=0), definitions.values
    starts, ends = definitions.starts[:-1], definitions.starts[1:]

    def alike(places: Array) -> bool:
        return bool((values[places] == values[places[0]]).all())

    first = next((i for i in range(shortest) if not alike(starts + i)), shortest)
    return first, next((i for i in range(shortest - first) if not alike(ends - 1 - i)), shortest - first)


def base_numbers(data: TrainingData) -> Array:
    """A number for each behavior that those with the same base share; persona traits keep their own."""
    names = [str(name) for name in data.behaviors]
    bases = [name if name.startswith(("persona:", "user_persona:")) else name.partition(":")[0] for name in names]
    return np.unique(bases, return_inverse=True)[1]


def held_out(data: TrainingData, rows: Array, *, tokens: int, pad: int = 0) -> Iterator[tuple[Array, Step]]:
    """Batches (row numbers, arrays) over held-out rows, each with its own definition and view."""
    view_lengths = data.views.lengths[data.rows.view[rows]]
    lengths = data.definitions.lengths[data.rows.definition[rows]]
    rows = rows[np.lexsort((lengths, view_lengths // 32))]
    start = 0
    while start < len(rows):
        size = 1
        longest = 0
        while start + size <= len(rows):
            longest = max(longest, int(data.views.lengths[data.rows.view[rows[start + size - 1]]]))
            if size * (longest + 64) > tokens:
                break
            size += 1
        part = rows[start : start + max(1, size - 1)]
        start += len(part)
        yield part, _plain_step(data, part, pad)


def _plain_step(data: TrainingData, rows: Array, pad: int) -> Step:
    views, definitions = data.rows.view[rows], data.rows.definition[rows]
    view_lengths, lengths = data.views.lengths[views], data.definitions.lengths[definitions]
    return Step(
        data.views.padded(views, int(width_of(view_lengths).max()), pad),
        view_lengths,
        data.definitions.padded(definitions, _rounded(int(lengths.max()), 8), pad)[:, None],
        lengths[:, None],
        np.eye(3, dtype=np.float32)[data.rows.label[rows]][:, None],
        np.ones((len(rows), 1), np.float32),
    )


def width_of(lengths: Array) -> Array:
    """The narrowest of the widths that takes each."""
    beyond: Array = -(-lengths // 512) * 512
    return np.where(lengths > WIDTHS[-1], beyond, WIDTHS[np.minimum(np.searchsorted(WIDTHS, lengths), len(WIDTHS) - 1)])


def _rounded(size: int, to: int) -> int:
    return -(-size // to) * to
