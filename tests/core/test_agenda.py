"""The node's own order of work."""

from mainspring.core.agenda import Agenda, ComeLate, Idle, RunPass, RunRound
from mainspring.core.nouns import Lease, Part, Pass


def work(serial: int, predicted: float = 0.05, within: float = 10.0, key: str = "") -> Pass:
    part = Part(f"r{serial}", 0, 0, 100, 0, 1, 10, key)
    return Pass(serial, "n", 0, (part,), predicted, within, 1)


def lease(name: str, token_s: float | None = 0.1) -> Lease:
    return Lease(name, "n", 100, 50, token_s)


def test_passes_run_in_order_then_it_idles() -> None:
    agenda = Agenda()
    agenda.add(work(1), 0.0)
    agenda.add(work(2), 0.0)
    assert agenda.next(0.0) == RunPass(work(1))
    assert agenda.next(0.05) == RunPass(work(2))
    assert agenda.next(0.10) == Idle()


def test_what_can_not_start_in_time_is_never_run() -> None:
    agenda = Agenda()
    agenda.add(work(1, within=0.5), 0.0)
    assert isinstance(agenda.next(0.6), ComeLate)
    assert agenda.next(0.6) == Idle()


def test_rounds_fill_the_time_without_passes() -> None:
    agenda = Agenda()
    agenda.open(lease("a"))
    assert agenda.next(0.0) == Idle(), "not before its prompt is in"
    assert agenda.begin("a", 0.0)
    assert agenda.next(0.0) == RunRound(("a",))
    agenda.close("a")
    assert agenda.next(0.1) == Idle()


def test_a_round_goes_first_when_a_pass_would_starve_a_stream() -> None:
    agenda = Agenda()
    agenda.open(lease("a", token_s=0.1))
    agenda.begin("a", 0.0)
    agenda.round_done(0.02, 1.0)
    agenda.add(work(1, predicted=0.04), 1.0)
    agenda.add(work(2, predicted=0.06), 1.0)
    assert agenda.next(1.0) == RunPass(work(1, predicted=0.04))
    assert agenda.next(1.04) == RunRound(("a",)), "0.04 + 0.06 + a round is beyond the gap of 0.1"
    agenda.round_done(0.02, 1.06)
    assert agenda.next(1.06) == RunPass(work(2, predicted=0.06))


def test_even_an_oversized_pass_runs_right_after_a_round() -> None:
    agenda = Agenda()
    agenda.open(lease("a", token_s=0.1))
    agenda.begin("a", 0.0)
    agenda.add(work(1, predicted=5.0), 0.5)
    assert isinstance(agenda.next(0.5), RunRound)
    agenda.round_done(0.02, 0.52)
    assert isinstance(agenda.next(0.52), RunPass)


def test_pins_and_drops() -> None:
    agenda = Agenda()
    agenda.add(work(1, key="v"), 0.0)
    assert agenda.pinned() == {"v"}
    assert agenda.drop(1)
    assert not agenda.drop(1)
    assert agenda.pinned() == set()


def test_a_window_that_closes_while_something_runs_is_told_at_once() -> None:
    agenda = Agenda()
    for serial, within in ((1, 9.0), (2, 0.5), (3, 7.0), (4, 0.4)):
        agenda.add(work(serial, within=within), 1.0)
    assert agenda.deadline_s() == 1.4
    assert agenda.late(1.4) == []
    assert [late.id for late in agenda.late(1.6)] == [2, 4]
    assert agenda.deadline_s() == 8.0
    assert agenda.next(1.6) == RunPass(work(1, within=9.0))
    assert agenda.next(1.6) == RunPass(work(3, within=7.0))
    assert agenda.deadline_s() == float("inf")


def test_clearing_forgets_everything() -> None:
    agenda = Agenda()
    agenda.add(work(1), 0.0)
    agenda.open(lease("a"))
    agenda.begin("a", 0.0)
    assert [left.id for left in agenda.clear()] == [1]
    assert (agenda.next(0.0), agenda.live, agenda.waiting) == (Idle(), 0, 0)


def test_a_clock_that_moves_between_a_round_and_the_next_step_starves_no_pass() -> None:
    agenda = Agenda()
    agenda.open(lease("a", token_s=0.1))
    agenda.begin("a", 0.0)
    agenda.round_done(0.02, 1.0)
    agenda.add(work(1, predicted=5.0), 1.0)
    assert isinstance(agenda.next(1.000_01), RunPass)
    agenda.add(work(2, predicted=5.0), 6.0)
    assert isinstance(agenda.next(6.0), RunRound), "the stream's turn"


def test_while_nobody_takes_tokens_only_passes_run() -> None:
    agenda = Agenda()
    agenda.open(lease("a", token_s=0.1))
    agenda.begin("a", 0.0)
    agenda.paused = True
    assert agenda.next(0.5) == Idle()
    agenda.add(work(1, predicted=5.0), 0.5)
    assert isinstance(agenda.next(0.6), RunPass)
    agenda.paused = False
    assert agenda.next(5.6) == RunRound(("a",))
