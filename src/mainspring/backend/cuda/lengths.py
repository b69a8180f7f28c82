"""A pass's lengths, and what follows from them alone: its shape and most of its tables (`fixed`).

They are made once for lengths that come again, as those of a kept view that is asked the same questions do; then a pass
writes no more than its token ids and addresses. At most KEPT passes are kept, of at most KEPT_ROWS rows and as
many views and labels, and of each at most KEPT_BYTES of tables: some 30 MB where all are large, never more than 64.
"""

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mainspring.backend.cuda.layout import Grid, Shape
from mainspring.backend.cuda.questions import Questions, questions
from mainspring.backend.protocol import IntArray
from mainspring.ops import ragged
from mainspring.ops.attention import tiles
from mainspring.ops.gated_delta.segments import count_segments

KEPT = 64
KEPT_ROWS = 10_240
KEPT_BYTES = 1 << 20
"""A pass of 10,240 rows on a view of 8,192 has 0.4 MB; on many long views every tile of a few rows has six items."""


class Lengths:
    """V views of `views` rows after `past` ones; B branches of `branches` rows on views `parents`, `labels` labels.
    `kept`: they may come again."""

    def __init__(
        self, views: IntArray, past: IntArray, branches: IntArray, parents: IntArray, labels: IntArray, *, kept: bool
    ) -> None:
        self.kept = kept
        self.views, self.past, self.branches, self.parents, self.labels = views, past, branches, parents, labels
        self.ends = past + views
        self.longest = int(self.ends.max(initial=0))
        self.view_rows, self.branch_rows = int(np.add.reduce(views)), int(np.add.reduce(branches))
        self.rows = self.view_rows + self.branch_rows
        self.image: tuple[Shape, NDArray[np.uint8]] | None = None  # `fixed`'s: its tables as they were last laid
        self._exact: Shape | None = None

    def questions(self, grid: Grid) -> Questions:
        return questions(
            self.branches, self.parents, self.labels, count=len(self.views), rows=grid.branch_rows, memory=grid.memory
        )

    def exact(self, grid: Grid) -> Shape:
        """The smallest shape."""
        shape = self._exact  # once: another backend of the process may put its own there
        if shape is None or shape.grid != grid:
            shape = self._exact = self._shape(grid)
        return shape

    def _shape(self, grid: Grid) -> Shape:
        asked, lengths = self.questions(grid), self.views
        (cut, last_cut), segments = asked.tile_counts, 0
        items, last_items = cut, last_cut
        split = self.longest > tiles.SPLIT_KEYS
        if split:
            items, last_items = (asked.counts @ tiles.key_splits(self.ends, grid.branch_keys)).tolist()
        if grid.segment_rows and self.longest > grid.segment_rows:
            segments = count_segments(lengths, grid.segment_rows)
        return Shape(
            self.view_rows, self.branch_rows, len(lengths), len(self.branches), len(asked.label_rows),
            _tiles(lengths, ragged.CHUNK_ROWS), _tiles(lengths, grid.view_rows),
            items, cut, last_items, last_cut, long=asked.longest > ragged.CHUNK_ROWS,
            split=split, grid=grid, segments=segments if segments > len(lengths) else 0,
            mixed=grid.mixes and 0 < self.branch_rows < self.rows and not split,
        )  # fmt: skip


def _tiles(lengths: IntArray, rows: int) -> int:
    return int(np.add.reduce(-(-lengths // rows)))


def lengths_of(
    views: Iterable[int], past: Iterable[int], branches: IntArray, parents: IntArray, labels: IntArray, *,
    branch_rows: int, label_count: int,
) -> Lengths:  # fmt: skip
    """See `Lengths`; `branch_rows` of all branches, `label_count` of all labels. Those without branches only move
    states on, from another place each time: they are not kept, nor are large ones."""
    views, past = tuple(views), tuple(past)
    same = (np.ascontiguousarray(x, np.int64).tobytes() for x in (branches, parents, labels))
    if len(branches) and max(sum(views) + branch_rows, len(views), label_count) <= KEPT_ROWS:
        return _kept(views, past, *same)
    return _made(views, past, *same, kept=False)


def _made(
    views: tuple[int, ...], past: tuple[int, ...], branches: bytes, parents: bytes, labels: bytes, *, kept: bool
) -> Lengths:
    asked = (np.frombuffer(x, np.int64) for x in (branches, parents, labels))
    return Lengths(np.array(views, np.int64), np.array(past, np.int64), *asked, kept=kept)


@lru_cache(maxsize=KEPT)
def _kept(views: tuple[int, ...], past: tuple[int, ...], branches: bytes, parents: bytes, labels: bytes) -> Lengths:
    return _made(views, past, branches, parents, labels, kept=True)
