import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mainspring.engine.packing import plan
from mainspring.engine.work import Branch, Work


def work(view: int, branches: list[int]) -> Work:
    ones = np.ones(1, np.int64)
    return Work(np.ones(view, np.int64), tuple(Branch(np.ones(n, np.int64), ones) for n in branches))


requests = st.lists(st.tuples(st.integers(0, 300), st.lists(st.integers(1, 80), max_size=12)), max_size=8)


@given(requests, st.integers(1, 400))
def test_plans_hold_every_branch_once_in_order_and_keep_the_limit(shapes, limit: int) -> None:
    works = [work(*shape) for shape in shapes]
    rows = [len(w.view) for w in works]
    passes = plan([w.branches for w in works], rows, limit)
    seen = [(part.request, part.first_branch + j) for p in passes for part in p for j in range(len(part.branches))]
    assert seen == [(i, j) for i, w in enumerate(works) for j in range(len(w.branches))]
    assert all(passes)
    started = set()
    for parts in passes:
        used = sum(part.rows for part in parts) + sum(rows[p.request] for p in parts if p.request not in started)
        started |= {part.request for part in parts}
        # only what can't be cut further goes over: one view with one branch
        assert used <= limit or (len(parts) == 1 and len(parts[0].branches) <= 1) or _uncut(parts, limit)
    assert started == set(range(len(works)))


def _uncut(parts, limit: int) -> bool:
    """A pass over the limit because its single view alone is."""
    return len(parts) == 1 and len(parts[0].branches) == 1


def test_a_big_request_is_split_by_branches() -> None:
    passes = plan([work(100, [30] * 10).branches], [100], 200)
    assert [[len(part.branches) for part in p] for p in passes] == [[3], [6], [1]]


def test_small_requests_share_a_pass() -> None:
    passes = plan([work(50, [10]).branches] * 5, [50] * 5, 130)
    assert [[part.request for part in p] for p in passes] == [[0, 1], [2, 3], [4]]


def test_a_view_over_the_limit_takes_a_branch_along() -> None:
    passes = plan([work(500, [10, 10]).branches], [500], 100)
    assert [[len(part.branches) for part in p] for p in passes] == [[1], [1]]
