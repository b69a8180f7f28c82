"""The tables that follow from a pass's lengths: all but its token ids, label ids and addresses.

Of lengths that are kept (`lengths`) they are copied from where they were last laid.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mainspring.backend.cuda.layout import Shape, Table
from mainspring.backend.cuda.lengths import KEPT_BYTES, Lengths
from mainspring.backend.cuda.questions import Questions
from mainspring.ops import ragged
from mainspring.ops.attention import tiles
from mainspring.ops.gated_delta.segments import segment_table


def lay(buffer: NDArray[np.uint8], tables: Mapping[str, Table], lengths: Lengths, shape: Shape) -> None:
    """Fill `buffer`, whose tables are `tables`, with those of `lengths`, padded to `shape`; zeros in the others."""
    image = lengths.image  # once: another backend of the process may put its own there
    if image is not None and image[0] == shape:
        buffer[:] = image[1]
        return
    buffer.fill(0)
    _write(tables, lengths, shape)
    if lengths.kept and buffer.nbytes <= KEPT_BYTES:
        lengths.image = shape, buffer.copy()


def _write(tables: Mapping[str, Table], lengths: Lengths, shape: Shape) -> None:
    asked, memory = lengths.questions(shape.grid), shape.grid.memory
    tables["owners"][: shape.view_rows] = shape.views  # the last store is nowhere: padding is not kept
    tables["tails"].fill(ragged.ZERO_ROW)
    tables["taps"].fill(ragged.ZERO_ROW)
    before = ragged.fresh(len(lengths.views), memory)
    for n in np.flatnonzero(lengths.past).tolist():
        before[n] = ragged.history_codes(n, memory)
    tails = before
    if lengths.view_rows:
        tails = ragged.tail_table(lengths.views, before)
        _write_views(tables, lengths, before, shape)
    _put(tables, "tails", tails)
    _write_branches(tables, lengths, asked, tails, shape)
    _write_attended(tables, lengths, asked, shape)


def _write_views(tables: Mapping[str, Table], lengths: Lengths, before: ragged.Int32, shape: Shape) -> None:
    """Their rows, from row 0, and how kernels walk them."""
    views, past, grid = lengths.views, lengths.past, shape.grid
    begins = ragged.starts(views)[:-1]
    place = np.arange(lengths.view_rows, dtype=np.int32)
    place += (past - begins).astype(np.int32).repeat(views)
    _put(tables, "positions", place)
    _put(tables, "places", place)
    _put(tables, "owners", np.arange(len(views)).repeat(views))
    _put(tables, "taps", ragged.tap_table(views, before))
    chunks, first_chunk = ragged.chunk_table(views)
    _put(tables, "chunks", chunks)
    spans = tables["spans"][: len(views)]
    spans[:, 0], spans[:, 1], spans[:, 2] = begins, views, first_chunk[:-1]
    if shape.segments:
        _put(tables, "segments", segment_table(views, grid.segment_rows))
    _put(tables, "view_items", tiles.view_items(views, past, rows=grid.view_rows, block=grid.view_keys))


def _write_branches(
    tables: Mapping[str, Table], lengths: Lengths, asked: Questions, tails: ragged.Int32, shape: Shape
) -> None:
    """Their rows, from `shape.view_rows`, each going on from the end of its view; and whose labels are whose."""
    at = shape.view_rows
    rows = slice(at, at + lengths.branch_rows)
    np.add(asked.inside, lengths.ends[asked.view], out=tables["positions"][rows], casting="same_kind")
    tables["owners"][at:], tables["places"][at:] = -1, np.arange(shape.branch_rows)
    taps = tables["taps"][rows]
    np.add(asked.taps, np.int32(at), out=taps)
    taps.reshape(-1)[asked.short] = tails.reshape(-1)[asked.tails]
    tables["parents"].fill(-1)
    _put(tables, "parents", lengths.parents)
    _put(tables, "fork_spans", asked.spans)
    _put(tables, "label_rows", asked.label_rows)


def _write_attended(tables: Mapping[str, Table], lengths: Lengths, asked: Questions, shape: Shape) -> None:
    """Whom branch rows attend to: all of them and, for the last layer, the last of each."""
    _put(tables, "first", asked.first_of_row)
    _put(tables, "last", np.arange(lengths.branch_rows))
    _put(tables, "last_first", asked.first)
    _put(tables, "last_last", asked.last)
    _put(tables, "last_rows", asked.last + shape.view_rows)
    items, cut = tiles.cut_tiles(asked.tiles, lengths.ends, block=shape.grid.branch_keys)
    n = asked.tile_counts[0]
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
