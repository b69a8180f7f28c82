"""Tables of passes equal the plain ones to the bit: laid anew, and copied from where lengths that come again lie."""

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


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths._kept.cache_clear()
    for rows in range(1, lengths.KEPT + 10):
        written(work := job([rows], [None], [5], [0]), exact(work, GRIDS[0]))
    assert lengths._kept.cache_info().currsize == lengths.KEPT
    before = lengths._kept.cache_info()
    written(work := job([70], [0], [], []), exact(work, GRIDS[0]))
    assert work.lengths.image is None
    assert lengths._kept.cache_info() == before
    monkeypatch.setattr(fixed, "KEPT_ROWS", 74)
    for rows, kept in ((69, True), (70, False)):
        written(work := job([rows], [None], [5], [0], seed=1), exact(work, GRIDS[0]))
        assert (work.lengths.image is not None) == kept
