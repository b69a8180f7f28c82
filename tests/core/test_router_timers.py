"""Timers of the router: none for what is over, all for what still waits."""

import pytest

from mainspring.core.events import Cancel
from router_rig import SLOW, Desk, node, score


def test_timers_of_settled_requests_do_not_pile_up() -> None:
    desk = Desk(node())
    for index in range(2000):
        desk.submit(score(f"r{index}", "batch", deadline_s=86_400.0))
        desk.finish(desk.passes()[-1])
    assert not desk.router.state.jobs
    assert len(desk.router.state.timers) < 1000
    desk.submit(score("late", "batch", deadline_s=50.0))
    assert any(getattr(entry[3], "request", None) is not None for entry in desk.router.state.timers)


@pytest.mark.parametrize("slo", ["interactive", "batch"])
def test_nobody_is_woken_for_what_is_over(slo: str) -> None:
    desk = Desk(node())
    desk.router.state.behind_s = 0.8
    desk.submit(score("a", slo, deadline_s=5.0))
    work = desk.passes()[-1]
    desk.start(work)
    assert desk.router.next_deadline() is not None
    desk.finish(work)
    assert desk.router.next_deadline() is None
    assert 0.0 < desk.router.state.behind_s <= 0.2  # each counts as one that came in time


def test_a_request_that_waits_behind_one_that_is_over_still_expires() -> None:
    desk = Desk(node("x", SLOW))
    desk.submit(score("a", "batch", deadline_s=2.0))
    desk.submit(score("b", "batch", deadline_s=50.0))
    desk.tell(Cancel("a"))
    jobs = [entry[3] for entry in desk.router.state.timers if entry[2] == "expiry"]
    assert desk.router.state.jobs["b"] in jobs
