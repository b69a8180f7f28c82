"""The router's one timer."""

from mainspring.fleet.driver import LONGEST_SLEEP_S, Driver
from support.fleet import Fleet


def test_the_timer_is_never_so_short_that_a_loop_takes_it_for_at_once() -> None:
    """uvloop rounds to the nearest millisecond: below half of one a timer comes at once, finds nothing due, and is set
    again until something is."""
    fleet = Fleet()
    armed: list[float] = []
    driver = Driver(fleet.shell, lambda: 5.0, lambda delay_s, _then: armed.append(delay_s))
    for due_s in (100.0, 5.02, 5.0001, 5.0 + 1e-9, 4.0):
        fleet.shell._drain_by_s = due_s
        driver._armed_s = float("inf")
        driver.arm()
    assert armed[0] == LONGEST_SLEEP_S
    assert 0.0199 < armed[1] < 0.0201
    assert [round(1e3 * delay_s) for delay_s in armed[2:]] == [1, 1, 1]
