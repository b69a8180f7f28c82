"""Where long views are cut so that their parts can be scanned side by side: numpy only.

By a view's rows alone, whatever else is in the pass, so that its numbers are the same in any company.
"""

import numpy as np
from numpy.typing import NDArray

from mainspring.ops.ragged import CHUNK_ROWS, Int32, starts

SEGMENT = 6
"""Columns: first row, rows, first chunk, view, segments of the view before it, and after it."""
SEGMENT_ROWS = 2_048
"""The least rows of a segment but the last: below, a walk is short and the second launch costs what it saves."""
MOST_SEGMENTS = 4
"""Of a view: with 16 heads and two slices each, one view's walks then fill the chip."""


def segment_chunks(chunks: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Chunks of a segment of each view; `rows` the least rows worth one, 0 for views that stay whole."""
    if not rows:
        return np.maximum(chunks, 1)
    wanted = np.minimum(-(-chunks * CHUNK_ROWS // rows), MOST_SEGMENTS)
    return np.maximum(-(-chunks // np.maximum(wanted, 1)), 1)


def count_segments(lengths: NDArray[np.int64], rows: int) -> int:
    """Segments of views of `lengths` rows, one of a view without rows."""
    chunks = -(-lengths // CHUNK_ROWS)
    return int(np.maximum(-(-chunks // segment_chunks(chunks, rows)), 1).sum())


def segment_table(lengths: NDArray[np.int64], rows: int) -> Int32:
    """[G, SEGMENT] of all views, one after another. All but a view's last have whole chunks only."""
    chunks = -(-lengths // CHUNK_ROWS)
    size = segment_chunks(chunks, rows)
    counts = np.maximum(-(-chunks // size), 1)
    first = starts(counts)
    view = np.arange(len(lengths)).repeat(counts)
    before = np.arange(first[-1]) - first[:-1][view]
    table = np.empty((len(view), SEGMENT), np.int32)
    inside = before * size[view] * CHUNK_ROWS
    table[:, 0] = starts(lengths)[:-1][view] + inside
    table[:, 1] = np.minimum(lengths[view] - inside, size[view] * CHUNK_ROWS)
    table[:, 2] = starts(chunks)[:-1][view] + before * size[view]
    table[:, 3], table[:, 4], table[:, 5] = view, before, counts[view] - 1 - before
    return table
