"""What a link makes of the time between two looks at it: usual, a stop, a silence that was our own."""

import pytest

from mainspring.wire.control import Timing
from mainspring.wire.pulse import LOOK_S, STALL_S, Pulse

IDLE_S = 3.0


def pulse(*, watchful: bool) -> Pulse:
    return Pulse(Timing(idle_s=IDLE_S), 0.0, watchful=watchful)


@pytest.mark.parametrize("before", [0, 1, 50])
@pytest.mark.parametrize("late_s", [0.01, 0.1, 5.0])
def test_a_gap_longer_than_looks_are_apart_was_a_stop(late_s: float, before: int) -> None:
    link, now_s = pulse(watchful=True), 0.0
    for step_s in [0.0, STALL_S / 2, STALL_S, LOOK_S, LOOK_S + STALL_S - 1e-3] * before:
        now_s += step_s
        link.look(now_s)
    assert link.age_s == 0.0
    gap_s = LOOK_S + STALL_S + late_s
    link.look(now_s + gap_s)
    assert link.age_s == pytest.approx(gap_s)
    assert link.ping_due(now_s + gap_s) is not None  # at once: its pong tells what is fresh


def test_whoever_looks_too_late_does_not_blame_the_peer_for_the_silence() -> None:
    late, regular = pulse(watchful=False), pulse(watchful=False)
    for tick in range(1, 70):
        regular.ping_due(STALL_S * tick)
        regular.look(STALL_S * tick * 0.999)
    late.look(2.5)
    assert regular.dead(IDLE_S + 0.1)
    assert not late.dead(IDLE_S + 0.1)
    assert late.dead(2.5 + IDLE_S)
