"""Tables of ragged rows against loops."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mainspring.ops import ragged


@given(
    lengths=st.lists(st.integers(0, 9), max_size=6),
    kinds=st.lists(st.booleans(), min_size=6, max_size=6),
    memory=st.integers(1, 4),
    first_row=st.sampled_from([0, 7]),
)
def test_taps_and_tails(lengths: list[int], kinds: list[bool], memory: int, first_row: int) -> None:
    before = ragged.fresh(len(lengths), memory)
    for n in range(len(lengths)):
        if kinds[n]:
            before[n] = ragged.history_codes(n, memory)
    taps, tails, row = [], [], first_row
    for n, length in enumerate(lengths):
        seen = [*before[n].tolist(), *range(row, row + length)]
        taps += [seen[i : i + memory] for i in range(length)]
        tails.append(seen[len(seen) - memory :])
        row += length
    assert ragged.tap_table(lengths, before, first_row).tolist() == taps
    if not first_row:
        assert ragged.tail_table(lengths, before).tolist() == tails
    codes = before[before < ragged.ZERO_ROW]
    assert len(set(codes.tolist())) == len(codes)


@given(lengths=st.lists(st.integers(0, 300), max_size=6))
def test_chunks_cover_every_row_once_and_cross_no_sequence(lengths: list[int]) -> None:
    chunks, first = ragged.chunk_table(lengths)
    starts = ragged.starts(lengths)
    covered = [row for begin, count in chunks.tolist() for row in range(begin, begin + count)]
    assert covered == list(range(sum(lengths)))
    for n in range(len(lengths)):
        mine = chunks[first[n] : first[n + 1]]
        assert mine[:, 1].sum() == lengths[n]
        assert ((mine[:, 0] - starts[n]) % ragged.CHUNK_ROWS == 0).all()
    assert chunks.dtype == first.dtype == np.int32
