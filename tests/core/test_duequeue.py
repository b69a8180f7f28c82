"""The queue against a plain sorted list."""

from hypothesis import given
from hypothesis import strategies as st

from mainspring.core import duequeue
from mainspring.core.duequeue import DueQueue, plus
from mainspring.core.jobs import Job, Shard
from mainspring.core.nouns import DEFAULT_CLASSES, NO_WORK
from router_rig import score


def shard(serial: int, arrival: float, view: int) -> Shard:
    job = Job(score(f"r{serial}", "standard", view=view), DEFAULT_CLASSES[1], arrival)
    job.cut([(0, 8)], serial)
    return job.shards[0]


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 9000), st.booleans()), max_size=60), st.integers(2, 9))
def test_order_sums_and_places(steps: list[tuple[float, int, bool]], cap: int) -> None:
    old, duequeue.CAP = duequeue.CAP, cap
    try:
        queue, model = DueQueue(), []
        for serial, (arrival, view, remove) in enumerate(steps):
            if remove and model:
                gone = model.pop(serial % len(model))
                queue.remove(gone)
            else:
                new = shard(serial, arrival, view)
                queue.add(new)
                model.append(new)
            model.sort(key=lambda s: s.key)
            assert list(queue.scan()) == model
            assert len(queue) == len(model)
            total = NO_WORK
            for item in model:
                total = plus(total, item.work)
            assert queue.total == total
            for rank, item in enumerate(model):
                ahead = queue.ahead(item.key)
                assert ahead[0] == rank
                assert 0 <= ahead[1] <= total[1]
            assert queue.head() is (model[0] if model else None)
            assert list(queue.scan(3)) == model[3:]
    finally:
        duequeue.CAP = old


def test_ahead_is_exact_at_bucket_bounds_and_close_between() -> None:
    queue = DueQueue()
    shards = [shard(serial, float(serial), 1000 + serial % 7) for serial in range(3000)]
    for item in shards:
        queue.add(item)
    exact = 0
    for item in shards:
        assert abs(queue.ahead(item.key)[1] - exact) <= 8 * 1006
        exact += item.work[1]


def test_jumping_ahead_needs_the_slack_of_all_behind() -> None:
    queue = DueQueue()
    patient, tight = shard(1, 1.0, 100), shard(2, 2.0, 100)
    patient.slack_s, tight.slack_s = 5.0, 0.5
    queue.add(patient)
    queue.add(tight)
    assert queue.slack_after((0.0, 0)) == 0.5
    queue.delay_after((0.0, 0), 0.3)
    assert abs(queue.slack_after((0.0, 0)) - 0.2) < 1e-9
