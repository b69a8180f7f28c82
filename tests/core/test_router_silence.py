"""Silence: of a stream, of a node, of all nodes. Nobody waits for ever, and who is refused hears when to ask again."""

import pytest

from mainspring.core.actions import Admit, CloseLease, Refuse
from mainspring.core.events import LeaseEnded, LeaseProgress, LeaseStarted, NodeJoined, Timer
from mainspring.core.leases import silence_s
from mainspring.core.nouns import Lease
from router_rig import ROUND, Desk, Limits, generate, node, score

SLOTS = Limits(slots=2)


def pass_time(desk: Desk, seconds: float) -> None:
    until = desk.now + seconds
    while (when := desk.router.next_deadline()) is not None and when <= until:
        desk.tell(Timer(), max(desk.now, when))
    desk.tell(Timer(), until)


def streaming(slo: str = "interactive", *names: str) -> Desk:
    """A node that has scanned a prompt and said its first token."""
    desk = Desk(*(node(name, round_cost=ROUND, limits=SLOTS) for name in names or ("x",)))
    desk.submit(generate("g", slo, tokens=5000))
    (work,) = desk.passes()
    desk.finish(work)
    desk.tell(LeaseStarted(work.node_id, 0, "g"))
    return desk


@pytest.mark.parametrize("slo", ["interactive", "standard", "batch"])
def test_a_stream_not_heard_of_is_lost_and_its_slot_let_go(slo: str) -> None:
    desk = streaming(slo)
    silence = silence_s(desk.router.state.nodes["x"].leases["g"].lease)
    for _ in range(3):
        pass_time(desk, 0.9 * silence)
        desk.tell(LeaseProgress("x", 0, "g", 32))
    assert not desk.refused()
    pass_time(desk, 0.9 * silence)
    assert not desk.refused()
    pass_time(desk, 0.2 * silence)
    assert desk.refused() == {"g": "lease_lost"}
    assert CloseLease("x", "g") in desk.log
    assert not desk.router.state.nodes["x"].leases


@pytest.mark.parametrize(("gap", "silence"), [(0.001, 10.0), (0.1, 16.0), (0.25, 40.0), (None, 160.0)])
def test_silence_is_five_reports_and_ten_seconds_at_least(gap: float | None, silence: float) -> None:
    assert silence_s(Lease("g", "x", 10, 10, gap)) == pytest.approx(silence)


def test_the_first_token_is_a_word_of_the_stream() -> None:
    desk = Desk(node("x", round_cost=ROUND, limits=SLOTS))
    desk.submit(generate("g", "batch"))
    desk.finish(desk.passes()[0])
    pass_time(desk, 150.0)
    desk.tell(LeaseStarted("x", 0, "g"))
    pass_time(desk, 150.0)
    assert not desk.refused()


def test_the_silence_of_an_earlier_slot_is_not_that_of_the_next_on_the_same_node() -> None:
    desk = Desk(node("x", round_cost=ROUND, limits=SLOTS))
    desk.submit(generate("g", "batch"))
    desk.finish(desk.passes()[0])
    pass_time(desk, 150.0)
    desk.tell(LeaseEnded("x", 0, "g", 0, failed=True))
    desk.finish(desk.passes()[1])
    pass_time(desk, 100.0)
    assert desk.router.state.nodes["x"].leases["g"].lease.attempt == 1
    assert len(desk.passes()) == 2


def test_a_first_token_that_never_comes_is_asked_of_another_node() -> None:
    desk = Desk(*(node(name, round_cost=ROUND, limits=SLOTS) for name in ("x", "y")))
    desk.submit(generate("g", "batch"))
    (work,) = desk.passes()
    desk.finish(work)
    pass_time(desk, 400.0)
    again = desk.passes()[1]
    assert again.node_id != work.node_id, "the silent one attracts nothing"
    assert not desk.refused()


def test_a_node_silent_but_for_its_dead_stream_is_late_until_it_speaks() -> None:
    desk = streaming()
    pass_time(desk, 30.0)
    assert desk.router.state.nodes["x"].late
    desk.submit(score("r", "batch"))
    assert len(desk.passes()) == 1
    actions = desk.tell(LeaseEnded("x", 0, "g", 100))
    assert [part.request_id for work in desk.passes(actions) for part in work.parts] == ["r"]


def test_a_node_late_for_a_dead_stream_alone_is_asked_again() -> None:
    """It has nothing to answer for, so it would never speak: one hung stream must not end a fleet of one."""
    desk = streaming()
    pass_time(desk, 20.0)
    assert desk.router.state.nodes["x"].late
    desk.submit(score("waits", "batch"))
    (refusal,) = desk.submit(score("standard", "standard"))
    assert isinstance(refusal, Refuse), "it would be missed"
    retry = refusal.error.retry_after_s  # type: ignore[attr-defined]
    assert retry is not None
    pass_time(desk, retry)
    assert isinstance(desk.submit(score("again", "standard"))[0], Admit)
    for count in (1, 2):
        while len(desk.passes()) <= count:
            desk.tell(Timer(), max(desk.now, desk.router.next_deadline() or 0.0))
        desk.finish(desk.passes()[count])
    assert desk.answered() == ["again", "waits"]


def test_silence_of_a_stream_says_nothing_of_a_pass_that_is_not_overdue() -> None:
    desk = streaming("batch")
    silence = silence_s(desk.router.state.nodes["x"].leases["g"].lease)
    pass_time(desk, silence - 0.05)
    desk.submit(score("r", "batch", view=30_000))
    pass_time(desk, 0.06)
    assert desk.refused() == {"g": "lease_lost"}
    assert desk.router.state.passes, "it runs"
    assert not desk.router.state.nodes["x"].late


def test_a_node_that_spoke_of_other_work_is_not_late_for_one_dead_stream() -> None:
    desk = streaming()
    pass_time(desk, 10.0)
    desk.submit(score("r", "batch"))
    desk.finish(desk.passes()[-1])
    pass_time(desk, 10.0)
    assert desk.refused() == {"g": "lease_lost"}
    assert not desk.router.state.nodes["x"].late


def late_desk() -> Desk:
    desk = Desk(node("x"))
    desk.submit(score("a", "batch"))
    for _ in range(20):
        if desk.router.state.nodes["x"].late:
            return desk
        desk.tell(Timer(), max(desk.now, desk.router.next_deadline() or 0.0))
    raise AssertionError("never late")


def test_while_all_nodes_are_late_the_urgent_hear_when_to_ask_again() -> None:
    desk = late_desk()
    (refusal,) = desk.submit(score("urgent"))
    assert isinstance(refusal, Refuse)
    retry = refusal.error.retry_after_s  # type: ignore[attr-defined]
    assert retry is not None
    assert 0.0 < retry <= 3.0
    (admitted,) = desk.submit(score("patient", "standard"))
    assert isinstance(admitted, Admit), "it can wait until the node's work is given up"
    assert admitted.predicted_s >= 1.0
    desk.finish(desk.passes()[0], at=desk.now + retry)
    assert isinstance(desk.submit(score("again"))[0], Admit), "it spoke: the time was honest"


def test_behind_a_fleet_that_stays_silent_fewer_and_fewer_are_admitted() -> None:
    desk = late_desk()
    pass_time(desk, 5.0)
    assert isinstance(desk.submit(score("soon", "standard"))[0], Admit), "it has not been silent for long"
    pass_time(desk, 20.0)
    (refusal,) = desk.submit(score("later", "standard"))
    assert isinstance(refusal, Refuse), "it would only be missed"
    assert 10.0 < refusal.error.retry_after_s < 20.0  # type: ignore[attr-defined, operator]
    pass_time(desk, 100.0)
    (refusal,) = desk.submit(score("last", "standard"))
    assert isinstance(refusal, Refuse)
    assert refusal.error.retry_after_s is None  # type: ignore[attr-defined]


def test_the_second_pass_of_a_silent_node_is_not_older_than_its_giving_up() -> None:
    desk = Desk(node("x", limits=Limits(pass_parts=1)))
    desk.now = 1000.0
    for name in ("a", "b"):
        desk.submit(score(name, "batch"))
    first, *_ = desk.passes()
    desk.start(first)
    pass_time(desk, 3.0)
    assert len(desk.passes()) == 2
    assert all(held.abandoned for held in desk.router.state.nodes["x"].held)
    desk.finish(first, at=desk.now)
    pass_time(desk, 3.0)
    assert desk.router.state.nodes["x"].late
    assert isinstance(desk.submit(score("soon", "standard"))[0], Admit)


def test_a_late_node_counts_for_nothing_beside_one_that_answers() -> None:
    desk = late_desk()
    desk.tell(Timer(), desk.now + 5.0)
    alone = Desk(node("y"))
    desk.tell(NodeJoined(node("y")))
    refused = [0, 0]
    for at, one in enumerate((desk, alone)):
        index = 0
        while not refused[at]:
            (first, *_) = one.submit(score(f"u{index}"))
            refused[at] = index if isinstance(first, Refuse) else 0
            index += 1
    assert refused[0] <= refused[1], "a line of one node's length, not of two"


@pytest.mark.parametrize(("behind_s", "late"), [(0.0, True), (0.3, False)])
def test_a_router_that_was_behind_does_not_take_its_own_lateness_for_a_nodes_silence(
    behind_s: float, late: bool
) -> None:
    """What it sent may not have left, and the answer may lie unread: nobody is told of seconds for it."""
    desk = Desk(node("x"))
    desk.submit(score("a"))
    (work,) = desk.passes()
    overdue_s = desk.router.state.nodes["x"].overdue_s()
    pass_time(desk, overdue_s - desk.now - 1e-3)
    while not behind_s and desk.now < overdue_s:
        desk.tell(Timer(), desk.router.next_deadline())
    desk.tell(Timer(), overdue_s + behind_s)
    desk.submit(score("b"))
    assert desk.router.state.nodes["x"].late is late
    assert desk.refused() == ({"b": "contention"} if late else {})
    desk.finish(work)
    desk.submit(score("c"))
    assert "c" not in desk.refused()


def test_a_node_that_stays_silent_is_late_however_far_behind_the_router_is() -> None:
    desk = Desk(node("x"))
    desk.submit(score("a"))
    first_s = desk.router.state.nodes["x"].overdue_s()
    for _ in range(20):
        when_s = desk.router.next_deadline()
        assert when_s is not None
        desk.tell(Timer(), when_s + 0.5)
        if desk.router.state.nodes["x"].late:
            break
    assert desk.router.state.nodes["x"].late
    assert desk.now < first_s + 3.0
