"""What one forward is to run, and its tables: laid by its lengths (`fixed`), then its own ids and addresses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mainspring.backend.cuda import fixed
from mainspring.backend.cuda.layout import Grid, Shape, Table
from mainspring.backend.cuda.lengths import Lengths, lengths_of
from mainspring.backend.cuda.state import CudaState
from mainspring.backend.protocol import IntArray

NONE: IntArray = np.zeros(0, np.int64)


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
    def lengths(self) -> Lengths:
        """With states as long as they are when first asked for: a job is made, laid out and run, then they move on."""
        past = [0 if state is None else state.length for state in self.states]
        return lengths_of(
            map(len, self.view_tokens), past, self.branch_lengths, self.branch_views, self.label_counts,
            branch_rows=len(self.branch_tokens), label_count=len(self.label_ids),
        )  # fmt: skip

    @property
    def rows(self) -> int:
        return self.lengths.rows


class Scratch(NamedTuple):
    """Addresses of what forgotten views use, layer after layer: K/V rows, recurrent states; bytes of one each."""

    kv: int
    kv_row: int
    recurrent: int
    recurrent_view: int


def exact(job: Job, grid: Grid) -> Shape:
    """The smallest shape."""
    return job.lengths.exact(grid)


def write(buffer: NDArray[np.uint8], tables: Mapping[str, Table], job: Job, shape: Shape, scratch: Scratch) -> None:
    """Fill `buffer`, whose tables are `tables`, with those of `job`, padded to `shape`."""
    lengths = job.lengths
    fixed.lay(buffer, tables, lengths, shape)
    tokens = tables["tokens"]
    if lengths.view_rows:
        np.concatenate(job.view_tokens, out=tokens[: lengths.view_rows], casting="same_kind")
    tokens[shape.view_rows : shape.view_rows + lengths.branch_rows] = job.branch_tokens
    tables["label_ids"][: len(job.label_ids)] = job.label_ids
    _write_addresses(tables, job, scratch)


def _write_addresses(tables: Mapping[str, Table], job: Job, scratch: Scratch) -> None:
    """Where each view's state comes from and goes to; a stride of 0 uses the same scratch at every layer."""
    row = 0
    lengths = job.lengths
    for n, (state, length, past) in enumerate(
        zip(job.states, lengths.views.tolist(), lengths.past.tolist(), strict=True)
    ):
        if state is None:
            if not length:
                continue
            target = (scratch.recurrent + n * scratch.recurrent_view, 0)
            tables["stores"][n] = (scratch.kv + row * scratch.kv_row, 0)
            row += length
        else:
            target = (state.recurrent.data_ptr(), state.recurrent.stride(0) * state.recurrent.element_size())
            tables["stores"][n] = (state.kv.data_ptr(), state.kv.stride(0) * state.kv.element_size())
            if past:
                tables["sources"][n] = target
                tables["history"][n] = state.conv_address(state.parity)
            if length:
                tables["tail_to"][n] = state.conv_address(1 - state.parity)
        if length or past:
            tables["forks"][n] = target
        if length:
            tables["targets"][n] = target
