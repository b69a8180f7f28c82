"""What each program of the attention kernels does, as tables: numpy only.

An item is a tile of query rows against a stretch of keys:
    0 first query row   1 rows   2 owner of the keys (an index into the stores)
    3 first key   4 end of the keys that every row sees, in whole blocks   5 end of the keys
    6, 7 stretch of the pass's own keys (branches)   8 how many items share the tile
A view's tile sees its keys up to each row's own position. A branch tile sees all of its view and, of the pass's own
keys, what each row may. Long views are cut for branches at fixed multiples of SPLIT_KEYS, whatever else is in the pass,
so that sums are always taken in the same order.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mainspring.ops.ragged import Int32, starts

ITEM = 9
SPLIT_KEYS = 1408
MAX_SPLITS = 6

Ints = Sequence[int] | NDArray[np.integer]


def view_items(lengths: Ints, positions: Ints, *, rows: int, block: int) -> Int32:
    """Sequences of `lengths` rows from `positions` on, `rows` query rows a tile, `block` keys a step; longest first."""
    owner, first, count, inside = _cut(np.asarray(lengths, np.int64), rows)
    position = np.asarray(positions, np.int64)[owner] + inside
    items = np.zeros((len(owner), ITEM), np.int32)
    items[:, 0], items[:, 1], items[:, 2] = first, count, owner
    items[:, 4] = position // block * block
    items[:, 5] = position + count
    items[:, 8] = 1
    return items[np.argsort(-items[:, 5], kind="stable")]


def branch_items(queries: Ints, keys: Ints, first: Int32, last: Int32, *, rows: int, block: int) -> tuple[Int32, Int32]:
    """(items, tiles [N, 4]: first query row, rows, first item, items).

    `queries` query rows of each view, one view after another, on `keys` keys; of the pass's own keys, row i sees
    first[i] to last[i]."""
    owner, row, count, _ = _cut(np.asarray(queries, np.int64), rows)
    length = np.asarray(keys, np.int64)[owner]
    step = split_step(length, block)
    splits = np.maximum(-(-length // step), 1)
    first_item = starts(splits)[:-1]
    table = np.empty((len(owner), 4), np.int32)
    table[:, 0], table[:, 1], table[:, 2], table[:, 3] = row, count, first_item, splits
    tile = np.arange(len(owner)).repeat(splits)
    items = np.zeros((len(tile), ITEM), np.int32)
    items[:, 0], items[:, 1], items[:, 2] = row[tile], count[tile], owner[tile]
    begin = (np.arange(len(tile)) - first_item[tile]) * step[tile]
    end = np.minimum(begin + step[tile], length[tile])
    items[:, 3], items[:, 4], items[:, 5] = begin, begin + (end - begin) // block * block, end
    final = first_item + splits - 1
    items[final, 6] = first[row]
    items[final, 7] = last[row + count - 1] + 1
    items[:, 8] = splits[tile]
    return items, table


def split_step(keys: NDArray[np.int64], block: int) -> NDArray[np.int64]:
    """Keys a split, from the view's length alone: SPLIT_KEYS, or more where that would be over MAX_SPLITS splits."""
    least = -(-keys // MAX_SPLITS)
    return np.maximum(SPLIT_KEYS, -(-least // block) * block)


def _cut(lengths: NDArray[np.int64], rows: int) -> tuple[NDArray[np.int64], ...]:
    """Sequence, first row, rows and offset in its sequence, of every tile."""
    counts = -(-lengths // rows)
    owner = np.arange(len(lengths)).repeat(counts)
    inside = (np.arange(len(owner)) - starts(counts)[:-1][owner]) * rows
    return owner, starts(lengths)[:-1][owner] + inside, np.minimum(lengths[owner] - inside, rows), inside
