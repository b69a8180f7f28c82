import numpy as np
import pytest

from mainspring.backend.null import NullBackend
from mainspring.backend.protocol import Limits, PackedPass, PassResult
from mainspring.engine import Branch, Engine, Work
from mainspring.errors import InputError, TooLargeError


def work(
    view: list[int], branches: list[list[int]], labels: tuple[int, ...] = (1, 2), key: bytes | None = None
) -> Work:
    ids = np.array(labels, np.int64)
    return Work(np.array(view, np.int64), tuple(Branch(np.array(b, np.int64), ids) for b in branches), key)


def expected(w: Work) -> list[np.ndarray]:
    return Engine(NullBackend()).score([w])[0]


def same(got: list[np.ndarray], wanted: list[np.ndarray]) -> bool:
    return len(got) == len(wanted) and all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize("pass_rows", [1, 7, 20, 1000])
def test_results_come_back_by_request_however_passes_are_cut(pass_rows: int) -> None:
    works = [
        work([1, 2, 3], [[4], [5, 6], [7, 8, 9]], key=b"a"),
        work([9, 9], [[1]], labels=(5,)),
        work([1, 2, 3], [[3, 3], [4]], key=b"a"),
        work([], [[8]]),
        work([2] * 30, [[i] for i in range(9)], key=b"b"),
        work([6], []),
    ]
    backend = NullBackend(Limits(1000, pass_rows, 300))
    engine = Engine(backend)
    for _ in range(2):  # the second time from kept views
        for got, w in zip(engine.score(works), works, strict=True):
            assert same(got, expected(w))
    assert len(backend._views) == len(engine.store) == 2


def test_a_view_is_scanned_once_for_its_requests_and_not_at_all_when_kept() -> None:
    engine = Engine(NullBackend())
    works = [work([1] * 50, [[2]], key=b"v"), work([1] * 50, [[3]], key=b"v")]
    engine.score(works)
    assert engine.rows == 52
    engine.score(works)
    assert engine.rows == 54


def test_states_are_released_without_a_store_and_after_a_failure() -> None:
    backend = NullBackend(Limits(1000, 10, 300))
    engine = Engine(backend, cache_bytes=0)
    engine.score([work([1] * 9, [[i] for i in range(20)], key=b"k")])
    assert len(backend._views) == 0

    def broken(_: object) -> None:
        raise RuntimeError("device lost")

    works = [work([1] * 9, [[i] for i in range(20)], key=b"k")]
    real, calls = backend.score_pass, []

    def second_fails(packed):
        calls.append(packed)
        return real(packed) if len(calls) == 1 else broken(packed)

    backend.score_pass = second_fails
    with pytest.raises(RuntimeError, match="device lost"):
        engine.score(works)
    assert len(backend._views) == 0
    backend.score_pass = real
    assert same(engine.score(works)[0], expected(works[0]))


def test_states_held_at_once_stay_within_the_budget() -> None:
    """Many requests in one call: a finished one's state goes to the store, or is freed, before the next pass."""
    backend = NullBackend(Limits(1000, 60, 300))
    engine = Engine(backend, cache_bytes=2 * 50 * 4096)  # two views
    held: list[int] = []
    real = backend.score_pass

    def counted(packed: PackedPass) -> PassResult:
        held.append(len(backend._views))
        return real(packed)

    backend.score_pass = counted
    works = [work([i] * 50, [[2], [3]], key=b"%d" % i) for i in range(20)]
    for got, w in zip(engine.score(works), works, strict=True):
        assert same(got, expected(w))
    assert len(held) == 20
    assert max(held) == 2
    assert len(backend._views) == len(engine.store) == 2


def test_one_key_for_two_views_is_refused() -> None:
    backend = NullBackend(cost_seconds=(1.0, 0, 0), sleep=lambda _: pytest.fail("a pass ran"))
    with pytest.raises(InputError, match=r"requests\[1\]\.view_key: another view has the same key"):
        Engine(backend).score([work([1, 2], [[2]], key=b"k"), work([1, 3], [[2]], key=b"k")])


def test_all_of_the_context_may_be_used() -> None:
    full = work([1] * 990, [[2] * 10])
    assert same(Engine(NullBackend(Limits(1000, 2000, 300))).score([full])[0], expected(full))


def test_a_kept_view_takes_no_room_in_a_pass_and_states_are_kept_only_where_wanted() -> None:
    backend = NullBackend(Limits(1000, 100, 300))
    passes: list[PackedPass] = []
    real = backend.score_pass
    backend.score_pass = lambda packed: (passes.append(packed), real(packed))[1]
    engine = Engine(backend)
    works = [work([i] * 90, [[2]], key=b"%d" % i) for i in range(5)]
    engine.score(works)
    assert [packed.keep.tolist() for packed in passes] == [[True]] * 5
    passes.clear()
    engine.score(works)
    assert len(passes) == 1
    assert (engine.store.hits, engine.store.misses) == (5, 5)
    passes.clear()
    engine.score([work([9] * 20, [[2]])])
    assert not passes[0].keep.any()


def test_time_and_rows_are_counted() -> None:
    engine = Engine(NullBackend(cost_seconds=(0.5, 0, 0), sleep=lambda _: None))
    engine.score([work([1, 2], [[2]])])
    engine.score([work([1, 2], [[2]])])
    assert (engine.device_seconds, engine.rows) == (1.0, 6)


def test_entries_are_unpinned_after_use() -> None:
    engine = Engine(NullBackend())
    engine.score([work([1] * 5, [[2]], key=b"v")])
    engine.score([work([1] * 5, [[2]], key=b"v")])
    engine.store.clear()
    assert len(engine.store) == 0


@pytest.mark.parametrize(
    ("bad", "error", "says"),
    [
        (work([1] * 990, [[2] * 11]), TooLargeError, "exceed the model's context of 1000 tokens"),
        (work([300], [[1]]), InputError, "token id 300 is outside the model's vocabulary of 300"),
        (work([1], [[-1]]), InputError, "token id -1 is outside"),
        (work([1], [[1]], labels=(999,)), InputError, "token id 999"),
        (work([1], [[]]), InputError, "at least one token"),
        (work([1], [[1]], labels=()), InputError, "one label"),
    ],
)
def test_bad_work_is_refused_before_anything_runs(bad: Work, error: type[InputError], says: str) -> None:
    backend = NullBackend(Limits(1000, 100, 300), cost_seconds=(1.0, 0, 0), sleep=lambda _: pytest.fail("a pass ran"))
    with pytest.raises(error) as caught:
        Engine(backend).score([work([1], [[2]]), bad])
    assert says in str(caught.value)
    assert "requests[1]" in str(caught.value)
