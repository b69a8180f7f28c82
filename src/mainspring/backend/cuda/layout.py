"""All tables of a pass in one buffer, so that one copy brings them to the device: how large each is, and where it lies.

`Shape` says how large: the exact one fits a pass (`lengths`), a bucketed one (`buckets`) rounds up so that passes of
about one size share it, and with it a recorded graph. What is padded does nothing: rows that no sequence owns,
sequences of no rows, items of no queries.
"""

import math
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mainspring.ops.attention import tiles
from mainspring.ops.gated_delta.segments import SEGMENT

Table = NDArray[np.signedinteger]


class Grid(NamedTuple):
    """How attention is cut (query rows a tile, keys a step, for views and branches), the convolution's memory, and the
    rows of a segment of long views in the delta rule (`gated_delta.segments`), 0: views stay whole. `mixes`: views and
    branches are cut alike and may share a launch."""

    view_rows: int
    view_keys: int
    branch_rows: int
    branch_keys: int
    memory: int
    segment_rows: int = 0
    mixes: bool = False


class Shape(NamedTuple):
    """Sizes of all tables. `long`: a branch has more than one chunk; `split`: some view's keys are cut for branches;
    `segments` 0: no view is cut in the delta rule; `mixed`: attention of views and branches is one launch."""

    view_rows: int
    branch_rows: int
    views: int
    branches: int
    labels: int
    chunks: int
    view_items: int
    items: int
    tiles: int
    last_items: int
    last_tiles: int
    long: bool
    split: bool
    grid: Grid
    segments: int = 0
    mixed: bool = False

    @property
    def rows(self) -> int:
        return self.view_rows + self.branch_rows


@lru_cache(maxsize=256)
def fields(shape: Shape) -> tuple[tuple[str, tuple[int, ...], int, int], ...]:
    """(name, size, first byte, end) in the order of the buffer. All begin at multiples of ALIGN: kernels are compiled
    anew for pointers that do not, which takes seconds in the middle of a pass."""
    s, memory = shape, shape.grid.memory
    wide: list[tuple[str, tuple[int, ...]]] = [
        ("history", (s.views,)), ("tail_to", (s.views,)), ("sources", (s.views, 2)), ("targets", (s.views, 2)),
        ("forks", (s.views, 2)), ("stores", (s.views + 1, 2)),
    ]  # fmt: skip
    narrow: list[tuple[str, tuple[int, ...]]] = [
        ("tokens", (s.rows,)), ("positions", (s.rows,)), ("owners", (s.rows,)), ("places", (s.rows,)),
        ("taps", (s.rows, memory)), ("tails", (s.views, memory)), ("chunks", (s.chunks, 2)), ("spans", (s.views, 3)),
        ("segments", (s.segments, SEGMENT)), ("mixed", ((s.view_items + s.items) * s.mixed, tiles.ITEM)),
        ("view_items", (s.view_items, tiles.ITEM)), ("fork_spans", (s.branches, 2)), ("parents", (s.branches,)),
        ("first", (s.branch_rows,)), ("last", (s.branch_rows,)), ("items", (s.items, tiles.ITEM)),
        ("tiles", (s.tiles, 4)),
        ("last_first", (s.branches,)), ("last_last", (s.branches,)), ("last_rows", (s.branches,)),
        ("last_items", (s.last_items, tiles.ITEM)), ("last_tiles", (s.last_tiles, 4)),
        ("label_rows", (s.labels,)), ("label_ids", (s.labels,)),
    ]  # fmt: skip
    sizes = [(name, size, 8) for name, size in wide] + [(name, size, 4) for name, size in narrow]
    lengths = [math.prod(size) * element for _, size, element in sizes]
    begins = accumulate((-(-length // ALIGN) * ALIGN for length in lengths), initial=0)
    return tuple(
        (name, size, begin, begin + length)
        for (name, size, _), length, begin in zip(sizes, lengths, begins, strict=False)
    )


ALIGN = 16
WIDE = frozenset({"history", "tail_to", "sources", "targets", "forks", "stores"})
"""Tables of addresses, int64; all others are int32."""


def buffer_bytes(shape: Shape) -> int:
    return fields(shape)[-1][3]


def host_tables(buffer: NDArray[np.uint8], shape: Shape) -> dict[str, Table]:
    """The tables in `buffer`, of `buffer_bytes`."""
    tables: dict[str, Table] = {}
    for name, size, begin, end in fields(shape):
        part = buffer[begin:end]
        typed: Table = part.view(np.int64) if name in WIDE else part.view(np.int32)
        tables[name] = typed.reshape(size)
    return tables
