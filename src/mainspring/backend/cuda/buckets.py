"""Shapes that passes of about one size share, so that few graphs are recorded."""

from functools import lru_cache

from mainspring.backend.cuda.layout import Shape
from mainspring.ops import ragged


@lru_cache(maxsize=256)
def bucketed(shape: Shape) -> Shape:
    """The smallest common shape that holds `shape`: at most an eighth more rows, powers of two of what is counted.
    What follows from rows and views takes its bound from them, so that few shapes arise."""
    s = shape
    views, view_rows = _power(s.views), round_rows(s.view_rows)
    return Shape(
        view_rows, round_rows(s.branch_rows), views, _power(s.branches), _power(s.labels),
        chunks=view_rows // ragged.CHUNK_ROWS + views if view_rows else 0,
        view_items=view_rows // s.grid.view_rows + views if view_rows else 0,
        items=_power(s.items), tiles=_power(s.tiles), last_items=_power(s.last_items), last_tiles=_power(s.last_tiles),
        long=s.long, split=s.split, grid=s.grid,
        segments=view_rows // s.grid.segment_rows + views if s.segments else 0, mixed=s.mixed,
    )  # fmt: skip


def round_rows(rows: int) -> int:
    """Up to a multiple of 64, and of an eighth of the power of two below, a sixteenth from 4,096 rows on."""
    below = 1 << max(rows - 1, 1).bit_length() - 1
    step = max(64, below // (16 if below >= 4_096 else 8))
    return -(-rows // step) * step


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length() if count else 0
