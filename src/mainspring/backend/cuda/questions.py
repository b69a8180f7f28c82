"""What of a pass's tables follows from its branches alone, whatever their views are: made once for a set of branches.

A service asks the same behaviors about one conversation after another, so branches of the same lengths, views and label
counts come again and again, and small passes wait for their tables. At most KEPT sets are kept, of at most KEPT_ROWS
rows and as many views and labels; what depends on views is added in each pass (`fixed`).
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mainspring.backend.protocol import IntArray
from mainspring.ops import ragged
from mainspring.ops.attention import tiles
from mainspring.ops.ragged import Int32

KEPT = 64
KEPT_ROWS = 8_192
"""Some 50 bytes each."""


class Questions(NamedTuple):
    """B branches of R rows on V views; rows count from the first branch row."""

    rows: IntArray  # [V] branch rows of each view
    longest: int
    first: Int32  # [B] first row
    last: Int32  # [B]
    view: NDArray[np.intp]  # [R] of each row
    inside: Int32  # [R] rows before it in its branch
    first_of_row: Int32  # [R]
    spans: Int32  # [B, 2] first row, rows
    taps: Int32  # [R, memory] rows before each
    short: NDArray[np.intp]  # places in `taps`, flat, that a view's last rows fill
    tails: NDArray[np.intp]  # which, flat in [V, memory]
    label_rows: NDArray[np.intp]  # branch of each label
    tiles: Int32  # of all rows, then of last rows (`tiles.branch_tiles`)
    counts: IntArray  # [2, V] of either, of each view
    tile_counts: tuple[int, ...]  # of either, of all views


def questions(
    lengths: IntArray, views: IntArray, label_counts: IntArray, *, count: int, rows: int, memory: int
) -> Questions:
    """Branches of `lengths` rows on `views` of `count`; `rows` query rows a tile, `memory` of the convolution."""
    most = max(count, int(np.add.reduce(lengths)), int(np.add.reduce(label_counts)))
    make = _questions if most <= KEPT_ROWS else _questions.__wrapped__
    same = (np.ascontiguousarray(x, np.int64).tobytes() for x in (lengths, views, label_counts))
    return make(*same, count, rows, memory)


@lru_cache(maxsize=KEPT)
def _questions(
    lengths_bytes: bytes, views_bytes: bytes, counts_bytes: bytes, count: int, rows: int, memory: int
) -> Questions:
    lengths, views, label_counts = (np.frombuffer(x, np.int64) for x in (lengths_bytes, views_bytes, counts_bytes))
    begins = ragged.starts(lengths)
    first, last = begins[:-1].astype(np.int32), (begins[1:] - 1).astype(np.int32)
    of_row = first.repeat(lengths)
    every = np.arange(begins[-1], dtype=np.int32)
    # Codes of rows are not negative, so what is tells which of its view's last rows a branch goes on from.
    codes = -1 - np.arange(count * memory, dtype=np.int32).reshape(count, memory)
    taps = ragged.tap_table(lengths, codes[views])
    short = np.flatnonzero(taps < 0)
    asked = (
        np.bincount(views, lengths, minlength=count).astype(np.int64),
        np.bincount(views, minlength=count).astype(np.int64),
    )
    made = [
        tiles.branch_tiles(queries, since, until, rows=rows)
        for queries, since, until in zip(asked, (of_row, first), (every, last), strict=True)
    ]
    return Questions(
        rows=asked[0], longest=int(lengths.max(initial=0)), first=first, last=last, view=views.repeat(lengths),
        inside=every - of_row, first_of_row=of_row, spans=np.stack([first, lengths.astype(np.int32)], axis=1),
        taps=taps, short=short, tails=-1 - taps.reshape(-1)[short].astype(np.intp),
        label_rows=np.arange(len(lengths)).repeat(label_counts), tiles=np.concatenate(made),
        counts=np.stack([-(-queries // rows) for queries in asked]), tile_counts=tuple(map(len, made)),
    )  # fmt: skip
