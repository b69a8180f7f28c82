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

from mainspring.ops.ragged import Int32, cut, starts

ITEM = 9
SPLIT_KEYS = 1408
MAX_SPLITS = 6

Ints = Sequence[int] | NDArray[np.integer]


def view_items(lengths: Ints, positions: Ints, *, rows: int, block: int) -> Int32:
    """Sequences of `lengths` rows from `positions` on, `rows` query rows a tile, `block` keys a step; longest first."""
    owner, first, count, inside = cut(np.asarray(lengths, np.int64), rows)
    position = np.asarray(positions, np.int64)[owner] + inside
    items = np.zeros((len(owner), ITEM), np.int32)
    items[:, 0], items[:, 1], items[:, 2] = first, count, owner
    items[:, 4] = position // block * block
    items[:, 5] = position + count
    items[:, 8] = 1
    if len(lengths) == 1:
        return items[::-1]
    return items[np.argsort(-items[:, 5], kind="stable")]


def branch_items(queries: Ints, keys: Ints, first: Int32, last: Int32, *, rows: int, block: int) -> tuple[Int32, Int32]:
    """(items, tiles [N, 4]: first query row, rows, first item, items).

    `queries` query rows of each view, one view after another, on `keys` keys; of the pass's own keys, row i sees
    first[i] to last[i]."""
    return cut_tiles(branch_tiles(queries, first, last, rows=rows), np.asarray(keys, np.int64), block=block)


def branch_tiles(queries: Ints, first: Int32, last: Int32, *, rows: int) -> Int32:
    """Items [N, ITEM] of whole tiles, before anything is known of the keys but the pass's own."""
    owner, row, count, _ = cut(np.asarray(queries, np.int64), rows)
    items = np.zeros((len(owner), ITEM), np.int32)
    items[:, 0], items[:, 1], items[:, 2], items[:, 8] = row, count, owner, 1
    items[:, 6], items[:, 7] = first[row], last[row + count - 1] + 1
    return items


def cut_tiles(whole: Int32, keys: NDArray[np.int64], *, block: int) -> tuple[Int32, Int32]:
    """`branch_items` from whole tiles, keys [V] of each owner."""
    owner = whole[:, 2]
    table = np.empty((len(whole), 4), np.int32)
    table[:, :2] = whole[:, :2]
    if int(keys.max(initial=0)) <= SPLIT_KEYS:
        items = whole.copy()
        end = keys[owner]
        items[:, 4], items[:, 5] = end // block * block, end
        table[:, 2], table[:, 3] = np.arange(len(whole)), 1
        return items, table
    step = split_step(keys, block)
    counts = np.maximum(-(-keys // step), 1)[owner]
    first_item = starts(counts)[:-1]
    table[:, 2], table[:, 3] = first_item, counts
    items = whole.repeat(counts, axis=0)
    owner = items[:, 2]
    begin = (np.arange(len(items)) - first_item.repeat(counts)) * step[owner]
    end = np.minimum(begin + step[owner], keys[owner])
    items[:, 3], items[:, 4], items[:, 5] = begin, begin + (end - begin) // block * block, end
    items[end < keys[owner], 6:8] = 0  # only a tile's last item sees the pass's own keys
    items[:, 8] = counts.repeat(counts)
    return items, table


def key_splits(keys: NDArray[np.int64], block: int) -> NDArray[np.int64]:
    """Items a branch tile, from its view's length alone."""
    return np.maximum(-(-keys // split_step(keys, block)), 1)


def split_step(keys: NDArray[np.int64], block: int) -> NDArray[np.int64]:
    """Keys a split, from the view's length alone: SPLIT_KEYS, or more where that would be over MAX_SPLITS splits."""
    least = -(-keys // MAX_SPLITS)
    return np.maximum(SPLIT_KEYS, -(-least // block) * block)
