"""Tables of passes equal the plain ones to the bit: laid anew, and copied from where lengths that come again lie."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mainspring.backend.cuda import fixed, lengths
from mainspring.backend.cuda.buckets import bucketed
from mainspring.backend.cuda.job import NONE, Job, Scratch, exact, write
from mainspring.backend.cuda.layout import Grid, Shape, buffer_bytes, host_tables
from mainspring.backend.cuda.state import CudaState
from support.pass_tables import MEMORY, ZERO, plain_tables

SCRATCH = Scratch(1 << 40, 32, 1 << 41, 64)
GRIDS = (
    Grid(32, 64, 32, 64, MEMORY, 128, mixes=True),
    Grid(32, 128, 16, 64, MEMORY, 256),
    Grid(16, 32, 32, 32, MEMORY),
)
PADDING = {"owners": -1, "parents": -1, "taps": ZERO, "tails": ZERO}  # zero elsewhere


def state(length: int, parity: int = 0) -> CudaState:
    kv, recurrent, conv = (torch.empty(size) for size in ((2, length + 9, 2, 1, 4), (3, 2, 4, 4), (3, 2, MEMORY, 8)))
    return CudaState(kv, recurrent, conv, length, parity)


def job(views: list[int], past: list[int | None], branches: list[int], parents: list[int], seed: int = 0) -> Job:
    """`past` None: a view that starts from nothing and is forgotten."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, len(branches))
    return Job(
        [rng.integers(1, 9000, n) for n in views], [None if p is None else state(p, seed % 2) for p in past],
        rng.integers(1, 9000, sum(branches)), np.array(branches, np.int64), np.array(parents, np.int64),
        rng.integers(1, 9000, labels.sum()), labels,
    )  # fmt: skip


def written(work: Job, shape: Shape) -> dict[str, np.ndarray]:
    buffer = np.full(buffer_bytes(shape), 77, np.uint8)
    tables = host_tables(buffer, shape)
    write(buffer, tables, work, shape, SCRATCH)
    return {name: table.copy() for name, table in tables.items()}


def check(work: Job, shape: Shape) -> None:
    plain = plain_tables(work, shape, SCRATCH)
    for found in (written(work, shape), written(work, shape)):
        assert found.keys() == plain.keys()
        for name, table in found.items():
            wanted = np.full_like(table, PADDING.get(name, 0))
            if plain[name]:
                wanted[: len(plain[name])] = plain[name]
            assert np.array_equal(table, wanted), name


def random_job(seed: int) -> Job:
    """One to five views, some kept, some without rows, some long; branches of uneven length on some of them."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 6)) if seed % 3 else 1
    views = [int(rng.choice([0, 1, 2, 3, 64, 65, rng.integers(1, 700), rng.integers(1, 3000)])) for _ in range(count)]
    past = [[None, None, 0, 1, 2, 700, int(rng.integers(1, 20_000))][rng.integers(7)] for _ in range(count)]
    parents = sorted(rng.integers(0, count, rng.integers(0, 12)).tolist())
    branches = [int(rng.choice([1, 2, 40, rng.integers(1, 150)])) for _ in parents]
    return job(views, past, branches, parents, seed)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("seed", range(40))
def test_tables_are_the_plain_ones(seed: int, grid: Grid) -> None:
    work = random_job(seed)
    shape = exact(work, grid)
    check(work, shape)
    check(work, bucketed(shape))


@pytest.mark.parametrize("grid", GRIDS)
def test_tables_of_usual_passes_are_the_plain_ones(grid: Grid) -> None:
    """One view with and without rows, several, and none at all."""
    for work in (
        job([500], [None], [40] * 8, [0] * 8),
        job([0], [8192], [40] * 8, [0] * 8),
        job([30], [8192], [7, 40, 1], [0] * 3),
        job([2048, 300, 2048], [None] * 3, [40] * 6, [0, 0, 1, 1, 2, 2]),
        job([2500], [0], [], []),
        Job([], [], NONE, NONE, NONE, NONE, NONE),
    ):
        shape = exact(work, grid)
        check(work, shape)
        check(work, bucketed(shape))


def test_lengths_that_come_again_are_laid_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the tokens and states; another shape, or a state that moved, is laid anew."""
    laid = []
    lay = fixed._write
    monkeypatch.setattr(fixed, "_write", lambda tables, of, shape: laid.append(shape) or lay(tables, of, shape))
    lengths._kept.cache_clear()
    shape = exact(job([70], [None], [9, 1], [0, 0]), GRIDS[0])
    for seed in range(3):
        work = job([70], [None], [9, 1], [0, 0], seed=0)
        work.view_tokens[0][:] = seed
        check(work, shape)
    assert laid == [shape]
    check(job([70], [None], [9, 1], [0, 0]), bucketed(shape))
    assert laid == [shape, bucketed(shape)]
    for past in (70, 71):
        check(job([0], [past], [9, 1], [0, 0]), exact(job([0], [past], [9, 1], [0, 0]), GRIDS[0]))
    assert len(laid) == 4


def test_backends_that_cut_otherwise_share_lengths() -> None:
    """Tables of one's cut are no other's, though they take as many bytes."""
    grid = Grid(32, 64, 32, 64, MEMORY, 128)
    same_size = grid._replace(view_keys=32, branch_keys=32)
    shapes = []
    for each in (grid, same_size, grid):
        work = job([300], [100], [9, 40], [0, 0])
        shapes.append(exact(work, each))
        check(work, shapes[-1])
    assert [shape.grid for shape in shapes] == [grid, same_size, grid]
    assert len(set(map(buffer_bytes, shapes))) == 1


def test_passes_in_turn_in_one_buffer_leave_what_is_kept_alone() -> None:
    """As those of one graph are."""
    cases = (([70, 3], [None, 700], [9, 1], [0, 1]), ([66, 1], [0, None], [30], [1]))
    jobs = [job(*case) for case in cases]
    shape = Shape(*map(max, *(bucketed(exact(work, GRIDS[0])) for work in jobs)))
    laid = [written(work, shape) for work in jobs]
    for work in jobs:
        work.lengths.image = None
    buffer = np.zeros(buffer_bytes(shape), np.uint8)
    tables = host_tables(buffer, shape)
    for turn in range(4):
        write(buffer, tables, jobs[turn % 2], shape, SCRATCH)
        for name, table in tables.items():
            assert np.array_equal(table, laid[turn % 2][name]), name


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths._kept.cache_clear()
    for rows in range(1, lengths.KEPT + 10):
        written(work := job([rows], [None], [5], [0]), exact(work, GRIDS[0]))
    assert lengths._kept.cache_info().currsize == lengths.KEPT
    before = lengths._kept.cache_info()
    written(work := job([70], [0], [], []), exact(work, GRIDS[0]))
    assert work.lengths.image is None
    assert lengths._kept.cache_info() == before
    monkeypatch.setattr(lengths, "KEPT_ROWS", 74)
    for rows, kept in ((69, True), (70, False)):
        written(work := job([rows], [None], [5], [0], seed=1), exact(work, GRIDS[0]))
        assert (work.lengths.image is not None) == kept
    for views, kept in ((74, True), (75, False)):
        written(work := job([0] * views, [9] * views, [5], [0]), exact(work, GRIDS[0]))
        assert (work.lengths.image is not None) == kept
    before = lengths._kept.cache_info()
    for counts, kept in (([74], True), ([70, 5], False)):
        work = replace(job([4], [None], [5] * len(counts), [0] * len(counts)), label_counts=np.array(counts),
                       label_ids=np.arange(sum(counts)))  # fmt: skip
        written(work, exact(work, GRIDS[0]))
        assert (work.lengths.image is not None) == kept
    assert lengths._kept.cache_info().misses == before.misses + 1


def test_tables_of_many_bytes_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows on long views have many items."""
    work = job([0], [9000], [5], [0])
    shape = exact(work, GRIDS[0])
    for limit, kept in ((buffer_bytes(shape) - 1, False), (buffer_bytes(shape), True)):
        monkeypatch.setattr(fixed, "KEPT_BYTES", limit)
        work.lengths.image = None
        written(work, shape)
        assert (work.lengths.image is not None) == kept
