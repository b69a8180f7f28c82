"""A pass as the tables its kernels read, all in one buffer: one copy to the device, no question back.

`Job` says what to run, `Shape` how large every table is: `exact` fits the job, `bucketed` rounds up so that passes of
about one size share a shape, and with it a recorded graph. What is padded does nothing: rows that no sequence owns,
sequences of no rows, items of no queries.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mainspring.backend.cuda.questions import Questions, questions
from mainspring.backend.cuda.state import CudaState
from mainspring.backend.protocol import IntArray
from mainspring.ops import ragged
from mainspring.ops.attention import tiles
from mainspring.ops.gated_delta.segments import SEGMENT, count_segments, segment_table

NONE: IntArray = np.zeros(0, np.int64)
Table = NDArray[np.signedinteger]


@dataclass(frozen=True)
class Job:
    """Views and branches of one forward. states[n]: what view n starts from and is left in, None where it starts from
    nothing and is forgotten. A state has room for its view's rows."""

    view_tokens: Sequence[IntArray]
    states: Sequence[CudaState | None]
    branch_tokens: IntArray
    branch_lengths: IntArray
    branch_views: IntArray
    label_ids: IntArray
    label_counts: IntArray

    @cached_property
    def view_lengths(self) -> IntArray:
        return np.array([len(tokens) for tokens in self.view_tokens], np.int64)

    @cached_property
    def past_lengths(self) -> IntArray:
        """As they are when first asked for: a job is made, laid out and run, then the states move on."""
        return np.array([0 if state is None else state.length for state in self.states], np.int64)

    def questions(self, grid: "Grid") -> Questions:
        return questions(
            self.branch_lengths, self.branch_views, self.label_counts,
            count=len(self.states), rows=grid.branch_rows, memory=grid.memory,
        )  # fmt: skip

    @property
    def rows(self) -> int:
        return int(np.add.reduce(self.view_lengths)) + len(self.branch_tokens)


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


class Scratch(NamedTuple):
    """Addresses of what forgotten views use, layer after layer: K/V rows, recurrent states; bytes of one each."""

    kv: int
    kv_row: int
    recurrent: int
    recurrent_view: int


def exact(job: Job, grid: Grid) -> Shape:
    """The smallest shape."""
    asked, lengths = job.questions(grid), job.view_lengths
    splits = tiles.key_splits(job.past_lengths + lengths, grid.branch_keys)
    segments = count_segments(lengths, grid.segment_rows) if grid.segment_rows else 0
    (items, last_items), (cut, last_cut) = asked.counts @ splits, asked.counts.sum(axis=1)
    return Shape(
        job.rows - len(job.branch_tokens), len(job.branch_tokens), len(job.states), len(job.branch_lengths),
        len(job.label_ids), _tiles(lengths, ragged.CHUNK_ROWS), _tiles(lengths, grid.view_rows),
        int(items), int(cut), int(last_items), int(last_cut), long=asked.longest > ragged.CHUNK_ROWS,
        split=int(splits.max(initial=1)) > 1, grid=grid, segments=segments if segments > len(lengths) else 0,
        mixed=grid.mixes and 0 < len(job.branch_tokens) < job.rows and int(splits.max(initial=1)) == 1,
    )  # fmt: skip


def _tiles(lengths: IntArray, rows: int) -> int:
    return int(np.add.reduce(-(-lengths // rows)))


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


def write(buffer: NDArray[np.uint8], tables: Mapping[str, Table], job: Job, shape: Shape, scratch: Scratch) -> None:
    """Fill `buffer`, whose tables are `tables`, with those of `job`, padded to `shape`."""
    buffer.fill(0)
    asked = job.questions(shape.grid)
    lengths, past = job.view_lengths, job.past_lengths
    tables["owners"][: shape.view_rows] = shape.views  # the last store is nowhere: padding is not kept
    tables["tails"].fill(ragged.ZERO_ROW)
    tables["taps"].fill(ragged.ZERO_ROW)
    _write_addresses(tables, job, lengths, past, scratch)
    before = ragged.fresh(len(lengths), shape.grid.memory)
    for n in np.flatnonzero(past).tolist():
        before[n] = ragged.history_codes(n, shape.grid.memory)
    tails = before
    if any(map(len, job.view_tokens)):
        tails = ragged.tail_table(lengths, before)
        _write_views(tables, job, before, shape)
    _put(tables, "tails", tails)
    _write_branches(tables, job, asked, tails, shape)
    _write_attended(tables, job, asked, shape)


def _write_addresses(
    tables: Mapping[str, Table], job: Job, lengths: IntArray, past: IntArray, scratch: Scratch
) -> None:
    """Where each view's state comes from and goes to; a stride of 0 uses the same scratch at every layer."""
    row = 0
    for n, (state, length) in enumerate(zip(job.states, lengths.tolist(), strict=True)):
        if state is None:
            target = (scratch.recurrent + n * scratch.recurrent_view, 0) if length else (0, 0)
            tables["stores"][n] = (scratch.kv + row * scratch.kv_row, 0) if length else (0, 0)
            row += length
        else:
            target = (state.recurrent.data_ptr(), state.recurrent.stride(0) * state.recurrent.element_size())
            tables["stores"][n] = (state.kv.data_ptr(), state.kv.stride(0) * state.kv.element_size())
            if past[n]:
                tables["sources"][n] = target
                tables["history"][n] = state.conv_address(state.parity)
            if length:
                tables["tail_to"][n] = state.conv_address(1 - state.parity)
        tables["targets"][n] = target if length else (0, 0)
        tables["forks"][n] = target if length or past[n] else (0, 0)


def _write_views(tables: Mapping[str, Table], job: Job, before: ragged.Int32, shape: Shape) -> None:
    """Their rows, from row 0, and how kernels walk them."""
    lengths, past, grid = job.view_lengths, job.past_lengths, shape.grid
    begins = ragged.starts(lengths)[:-1]
    tokens = job.view_tokens[0] if len(job.view_tokens) == 1 else np.concatenate(job.view_tokens)
    place = np.arange(len(tokens)) - (begins - past).repeat(lengths)
    _put(tables, "tokens", tokens)
    _put(tables, "positions", place)
    _put(tables, "places", place)
    _put(tables, "owners", np.arange(len(lengths)).repeat(lengths))
    _put(tables, "taps", ragged.tap_table(lengths, before))
    chunks, first_chunk = ragged.chunk_table(lengths)
    _put(tables, "chunks", chunks)
    spans = tables["spans"][: len(lengths)]
    spans[:, 0], spans[:, 1], spans[:, 2] = begins, lengths, first_chunk[:-1]
    if shape.segments:
        _put(tables, "segments", segment_table(lengths, grid.segment_rows))
    _put(tables, "view_items", tiles.view_items(lengths, past, rows=grid.view_rows, block=grid.view_keys))


def _write_branches(tables: Mapping[str, Table], job: Job, asked: Questions, tails: ragged.Int32, shape: Shape) -> None:
    """Their rows, from `shape.view_rows`, each going on from the end of its view; and their labels."""
    at = shape.view_rows
    rows = slice(at, at + len(job.branch_tokens))
    tables["tokens"][rows] = job.branch_tokens
    ends = job.past_lengths + job.view_lengths
    np.add(asked.inside, ends[asked.view], out=tables["positions"][rows], casting="same_kind")
    tables["owners"][at:], tables["places"][at:] = -1, np.arange(shape.branch_rows)
    taps = tables["taps"][rows]
    np.add(asked.taps, np.int32(at), out=taps)
    taps.reshape(-1)[asked.short] = tails.reshape(-1)[asked.tails]
    tables["parents"].fill(-1)
    _put(tables, "parents", job.branch_views)
    _put(tables, "fork_spans", asked.spans)
    _put(tables, "label_rows", asked.label_rows)
    _put(tables, "label_ids", job.label_ids)


def _write_attended(tables: Mapping[str, Table], job: Job, asked: Questions, shape: Shape) -> None:
    """Whom branch rows attend to: all of them and, for the last layer, the last of each."""
    _put(tables, "first", asked.first_of_row)
    _put(tables, "last", np.arange(len(job.branch_tokens)))
    _put(tables, "last_first", asked.first)
    _put(tables, "last_last", asked.last)
    _put(tables, "last_rows", asked.last + shape.view_rows)
    keys = job.past_lengths + job.view_lengths
    items, cut = tiles.cut_tiles(asked.tiles, keys, block=shape.grid.branch_keys)
    n = int(asked.counts[0].sum())
    of_last = int(cut[n, 2]) if n < len(cut) else len(items)
    _put(tables, "items", items[:of_last])
    _put(tables, "tiles", cut[:n])
    if shape.mixed:
        tables["mixed"][: shape.view_items] = tables["view_items"]
        both = tables["mixed"][shape.view_items :][:of_last]
        both[:] = items[:of_last]
        both[:, 0] += shape.view_rows
    cut[n:, 2] -= of_last
    _put(tables, "last_items", items[of_last:])
    _put(tables, "last_tiles", cut[n:])


def _put(tables: Mapping[str, Table], name: str, values: Table) -> None:
    tables[name][: len(values)] = values
