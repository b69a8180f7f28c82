"""Timers of a loop that is a millisecond coarse are not asked for less."""

from mainspring.node.clock import SHORTEST_S, coarse


def test_no_timer_is_so_short_that_it_comes_at_once_and_what_is_due_now_is_not_put_off() -> None:
    asked: list[float] = []
    call_later = coarse(lambda delay_s, _: asked.append(delay_s))
    for delay_s in (-1.0, 0.0, 1e-6, 4e-4, 0.02):
        call_later(delay_s, lambda: None)
    assert asked == [0.0, 0.0, SHORTEST_S, SHORTEST_S, 0.02]
    assert round(1e3 * SHORTEST_S) >= 1  # as uvloop rounds it
