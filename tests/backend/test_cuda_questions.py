"""Tables kept for a set of branches: the same for every pass that asks them, and bounded."""

import numpy as np

from mainspring.backend.cuda import questions as module
from mainspring.backend.cuda.job import Job, Scratch, exact, write
from mainspring.backend.cuda.layout import Grid, buffer_bytes, host_tables

GRID = Grid(32, 64, 16, 64, 3)


def tables(lengths: list[int], branches: list[int], views: list[int]) -> bytes:
    queries = np.array(branches)
    job = Job(
        [np.arange(n) for n in lengths], [None] * len(lengths), np.arange(queries.sum()), queries, np.array(views),
        np.arange(len(branches)), np.ones(len(branches), np.int64),
    )  # fmt: skip
    shape = exact(job, GRID)
    buffer = np.full(buffer_bytes(shape), 77, np.uint8)
    write(buffer, host_tables(buffer, shape), job, shape, Scratch(16, 32, 48, 64))
    return buffer.tobytes()


def test_a_set_is_made_once_and_no_pass_changes_it() -> None:
    """Other views in between, cut for their keys and shorter than the convolution's memory, leave it alone."""
    module._questions.cache_clear()
    asked = [9, 1, 66], [0, 0, 1]
    first = tables([70, 2], *asked)
    for lengths in ([5000, 1], [0, 3], [1, 1]):
        tables(lengths, *asked)
    assert module._questions.cache_info().misses == 1
    assert tables([70, 2], *asked) == first
    module._questions.cache_clear()
    assert tables([70, 2], *asked) == first
    assert tables([70, 2], [9, 1, 65], [0, 0, 1]) != first


def test_what_is_kept_is_bounded() -> None:
    module._questions.cache_clear()
    for rows in range(1, module.KEPT + 10):
        tables([5], [rows], [0])
    assert module._questions.cache_info().currsize == module.KEPT
    before = module._questions.cache_info()
    tables([5], [module.KEPT_ROWS + 1], [0])
    assert module._questions.cache_info() == before


def test_sets_of_many_labels_or_views_are_not_kept() -> None:
    for count, labels in ((1, module.KEPT_ROWS + 1), (module.KEPT_ROWS + 1, 1)):
        before = module._questions.cache_info()
        asked = np.array([3]), np.array([0]), np.array([labels])
        found = module.questions(*asked, count=count, rows=16, memory=3)
        assert len(found.label_rows) == labels
        assert module._questions.cache_info() == before
