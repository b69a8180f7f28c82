"""Counters into rates: restarts, holes, bounds."""

import msgspec
import pytest

from mainspring.gateway.dashboard.history import LONGEST_STEP_S, POINTS, WINDOW_S, History
from mainspring.wire import messages as m
from support.dashboard import ended


def told(up_s: float, *, router: int = 1, passes: tuple[m.PassStatus, ...] = (), **counters: float) -> m.Status:
    return m.Status(router=router, up_s=up_s, version="1", counters=counters, passes=passes)


def test_a_rate_is_the_difference_over_the_time_between() -> None:
    history = History()
    history.add(told(10.0, answered=100, refused=4, failed=1, expired=1), 50.0)
    rates = history.add(told(12.0, answered=130, refused=5, failed=2, expired=3, open=6), 52.0)
    assert (rates.answered, rates.refused, rates.failed, rates.open) == (15.0, 0.5, 1.5, 6)


def test_the_first_look_has_no_rate() -> None:
    rates = History().add(told(10.0, answered=100), 50.0)
    assert rates.answered is None
    assert rates.refused is None


def test_a_router_that_restarted_counts_from_zero_and_makes_no_rate() -> None:
    history = History()
    history.add(told(10.0, answered=100), 50.0)
    assert history.add(told(0.5, router=2, answered=3), 51.0).answered is None
    assert history.add(told(1.5, router=2, answered=5), 52.0).answered == 2.0


def test_a_long_gap_is_a_hole() -> None:
    history = History()
    history.add(told(10.0, answered=100), 50.0)
    assert history.add(told(90.0, answered=900), 50.0 + LONGEST_STEP_S + 1.0).answered is None


def test_the_same_status_again_is_no_new_point() -> None:
    history = History()
    history.add(told(10.0, answered=100), 50.0)
    first = history.add(told(11.0, answered=110), 51.0)
    assert history.add(told(11.0, answered=110), 51.4) == first
    assert history.add(told(12.0, answered=120), 52.0).answered == 10.0
    assert len(history.points(52.0)) == 3


def test_tokens_come_from_the_passes_of_the_last_seconds() -> None:
    passes = (ended(1, ago_s=20.0, tokens=9999), ended(2, ago_s=3.0, tokens=400), ended(3, ago_s=0.1, tokens=600))
    assert History().add(told(10.0, passes=passes), 50.0).tokens == 200.0


def test_points_tell_their_age_and_are_bounded_in_number_and_time() -> None:
    history = History()
    for second in range(2 * POINTS):
        history.add(told(float(second + 1), answered=second), float(second))
    now_s = 2.0 * POINTS
    points = history.points(now_s)
    ages = [point.ago_s for point in points]
    assert len(points) == POINTS
    assert ages == sorted(ages, reverse=True)
    assert ages[-1] == pytest.approx(1.0)
    assert max(ages) <= WINDOW_S
    assert len(history.points(now_s + 100.0)) == POINTS - 100
    assert history.points(now_s + 2 * WINDOW_S) == []
    assert msgspec.json.decode(msgspec.json.encode(points))[0]["answered"] == 1.0
