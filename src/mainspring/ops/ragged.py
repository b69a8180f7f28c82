"""Index tables that kernels over ragged rows read: numpy only, no device, no library.

Rows are sequences one after another. A row number counts from the first row of the first sequence; a *code* names the
input row of a convolution tap: a row number, -1 for a zero row, or -2 - (n memory + j), row j of history n.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
CHUNK_ROWS = 64
ZERO_ROW = -1


def starts(lengths: Sequence[int] | NDArray[np.integer]) -> NDArray[np.int64]:
    """[S + 1]: first row of each sequence, and the number of rows."""
    out = np.zeros(len(lengths) + 1, np.int64)
    np.add.accumulate(lengths, out=out[1:])
    return out


def history_codes(history: int, memory: int) -> Int32:
    """[memory] codes of the rows of history number `history`."""
    return (-2 - history * memory - np.arange(memory)).astype(np.int32)


def fresh(sequences: int, memory: int) -> Int32:
    """[S, memory] codes of what precedes sequences that start from nothing."""
    return np.full((sequences, memory), ZERO_ROW, np.int32)


def tap_table(lengths: Sequence[int] | NDArray[np.integer], before: Int32, first_row: int = 0) -> Int32:
    """[T, memory] codes of the rows before each row, oldest first; `before` [S, memory] is what precedes a sequence.
    The first sequence begins at row `first_row`."""
    memory = before.shape[1]
    first = starts(lengths)
    rows = np.arange(first_row, first_row + first[-1], dtype=np.int32)
    table = np.empty((len(rows), memory), np.int32)
    for column in range(memory):  # inner loops as long as there are rows, not of three steps: 27 us for 126 of 8,192
        np.subtract(rows, memory - column, out=table[:, column])
    long, begins = np.asarray(lengths), first[:-1]
    if (long >= memory).all():
        of, old = _corner(memory)
        table.reshape(-1)[begins[:, None] * memory + of] = before[:, old]
        return table
    for offset in range(memory):
        has = np.flatnonzero(long > offset)
        table[begins[has] + offset, : memory - offset] = before[has, offset:]
    return table


@cache
def _corner(memory: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Of a sequence's first rows of taps, the places, flat, that lie before it, and the rows of `before` there."""
    row, column = np.nonzero(np.arange(memory)[:, None] + np.arange(memory) < memory)
    return row * memory + column, row + column


def tail_table(lengths: Sequence[int] | NDArray[np.integer], before: Int32) -> Int32:
    """[S, memory] codes of each sequence's last rows; one shorter than `memory` keeps the end of what preceded it."""
    memory = before.shape[1]
    at = np.asarray(lengths, np.int64)[:, None] + np.arange(-memory, 0)
    rows = (starts(lengths)[:-1, None] + at).astype(np.int32)
    inside = at >= 0
    if inside.all():
        return rows
    old = np.take_along_axis(before, np.clip(at + memory, 0, memory - 1), axis=1)
    return np.where(inside, rows, old)


def chunk_table(lengths: Sequence[int] | NDArray[np.integer]) -> tuple[Int32, Int32]:
    """([C, 2] first row and rows of every chunk, [S + 1] first chunk of each sequence)."""
    long = np.asarray(lengths, np.int64)
    _, first, rows, _ = cut(long, CHUNK_ROWS)
    table = np.empty((len(first), 2), np.int32)
    table[:, 0], table[:, 1] = first, rows
    return table, starts(-(-long // CHUNK_ROWS)).astype(np.int32)


def cut(lengths: NDArray[np.int64], rows: int) -> tuple[NDArray[np.int64], ...]:
    """Sequence, first row, rows and offset in its sequence, of every piece of `rows` rows at most."""
    if len(lengths) == 1:  # of one, which waits for its tables most, in a third of the time
        inside = np.arange(0, lengths[0], rows)
        return np.zeros_like(inside), inside, np.minimum(lengths[0] - inside, rows), inside
    counts = -(-lengths // rows)
    owner = np.arange(len(lengths)).repeat(counts)
    inside = (np.arange(len(owner)) - starts(counts)[:-1][owner]) * rows
    return owner, starts(lengths)[:-1][owner] + inside, np.minimum(lengths[owner] - inside, rows), inside
