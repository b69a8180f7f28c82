import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.engine.checkpoints import CheckpointStore


def store(budget: int) -> tuple[CheckpointStore, list[int]]:
    released: list[int] = []
    return CheckpointStore(budget, released.append), released


def test_evicts_what_saves_least() -> None:
    kept, released = store(100)
    assert kept.offer(b"dense", 1, rows=100, nbytes=50)
    assert kept.offer(b"sparse", 2, rows=10, nbytes=50)
    assert kept.offer(b"new", 3, rows=50, nbytes=40)
    assert released == [2]
    assert (b"dense" in kept, b"sparse" in kept, b"new" in kept) == (True, False, True)
    assert kept.used_bytes == 90
    assert kept.evictions == 1


def test_an_old_rich_entry_ages_out() -> None:
    """Without ageing one entry of high worth would stay for ever."""
    kept, _ = store(100)
    kept.offer(b"rich", 0, rows=1000, nbytes=50)
    for i in range(1, 60):
        kept.offer(b"%d" % i, i, rows=100, nbytes=50)
    assert b"rich" not in kept


def test_use_makes_an_entry_worth_more() -> None:
    kept, released = store(150)
    for state, key in enumerate((b"a", b"used", b"idle")):
        kept.offer(key, state, rows=10, nbytes=50)
    kept.offer(b"b", 3, rows=20, nbytes=50)  # evicts the first and raises the floor
    assert kept.acquire(b"used") == 1
    kept.unpin(b"used")
    kept.offer(b"c", 4, rows=20, nbytes=50)
    assert released == [0, 2]
    assert (kept.hits, kept.misses) == (1, 0)


def test_pinned_entries_stay() -> None:
    kept, released = store(100)
    kept.offer(b"a", 1, rows=1, nbytes=100)
    assert kept.acquire(b"a") == 1
    assert not kept.offer(b"b", 2, rows=100, nbytes=10)
    kept.clear()
    assert released == []
    kept.unpin(b"a")
    assert kept.offer(b"b", 2, rows=100, nbytes=10)
    assert released == [1]


def test_too_big_or_known_is_refused() -> None:
    kept, released = store(100)
    assert not kept.offer(b"a", 1, rows=1, nbytes=101)
    assert kept.offer(b"a", 1, rows=1, nbytes=100)
    assert not kept.offer(b"a", 2, rows=1, nbytes=1)
    assert released == []


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 60), st.integers(1, 1000)), max_size=60))
def test_bytes_add_up_and_states_are_released_once(operations) -> None:
    kept, released = store(100)
    owned: set[int] = set()
    for state, (key, nbytes, rows) in enumerate(operations):
        if kept.acquire(b"%d" % key) is not None:
            kept.unpin(b"%d" % key)
        elif kept.offer(b"%d" % key, state, rows=rows, nbytes=nbytes):
            owned.add(state)
        assert 0 <= kept.used_bytes <= 100
    kept.clear()
    assert kept.used_bytes == 0
    assert sorted(released) == sorted(owned)


def test_held_keys_stay_before_and_after_they_come() -> None:
    kept, released = store(100)
    kept.hold(b"a")
    assert kept.offer(b"a", 1, rows=1, nbytes=100)
    assert not kept.offer(b"b", 2, rows=100, nbytes=10), "the only room is held"
    kept.hold(b"a")
    kept.let_go(b"a")
    kept.clear()
    assert b"a" in kept
    kept.let_go(b"a")
    assert kept.held == 0
    assert kept.offer(b"b", 2, rows=100, nbytes=10)
    assert released == [1]
    with pytest.raises(ValueError, match="nobody holds"):
        kept.let_go(b"a")


def test_changes_are_told_by_what_is_true_now() -> None:
    kept, _ = store(100)
    kept.offer(b"unseen", 0, rows=1, nbytes=1)
    kept.watch()
    kept.offer(b"stays", 1, rows=7, nbytes=10)
    kept.offer(b"comes and goes", 2, rows=1, nbytes=10)
    kept.drop(b"comes and goes")
    kept.drop(b"unseen")
    kept.offer(b"unseen", 3, rows=2, nbytes=1)
    kept.offer(b"too big", 4, rows=1, nbytes=101)
    assert kept.changed
    assert kept.changes() == ([(b"stays", 7), (b"unseen", 2)], [b"comes and goes", b"too big"])
    assert kept.changes() == ([], [])
    assert not kept.changed


def test_changes_come_in_parts() -> None:
    kept, _ = store(100)
    kept.watch()
    for i in range(5):
        kept.offer(b"%d" % i, i, rows=i, nbytes=1)
    assert kept.changes(3) == ([(b"0", 0), (b"1", 1), (b"2", 2)], [])
    assert kept.changes(3) == ([(b"3", 3), (b"4", 4)], [])


def test_nobody_who_does_not_watch_pays_for_it() -> None:
    kept, _ = store(100)
    for i in range(50):
        kept.offer(b"%d" % i, i, rows=1, nbytes=10)
    assert not kept.changed


def test_taking_hands_the_state_over() -> None:
    kept, released = store(100)
    kept.offer(b"a", 1, rows=1, nbytes=60)
    assert kept.acquire(b"a") == 1
    assert kept.take(b"a") is None, "a pass uses it"
    assert not kept.drop(b"a")
    kept.unpin(b"a")
    assert kept.take(b"a") == 1
    assert (kept.take(b"a"), kept.used_bytes, released) == (None, 0, [])
