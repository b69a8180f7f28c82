"""When a node is sent work, and which node is asked."""

import pytest

from mainspring.core.dispatch import LEAD_S
from mainspring.core.events import LeaseEnded, LeaseStarted, Timer
from router_rig import ROUND, SLOW, Desk, Limits, generate, node, score


@pytest.mark.parametrize("early", [1.0, 0.75, 0.5])
def test_the_next_pass_leaves_before_the_running_one_can_end_early(early: float) -> None:
    desk = Desk(node("n"))
    holder = desk.router.state.nodes["n"]
    holder.fit.early_ratio = early
    desk.submit(score("a", "batch", 8000))
    desk.submit(score("b", "batch", 8000))
    (first,) = desk.passes()
    due = holder.end_s - holder.net_s - LEAD_S - (1.0 - early) * first.predicted_s
    assert desk.router.next_deadline() == pytest.approx(due)
    desk.tell(Timer(), due - 1e-4)
    assert len(desk.passes()) == 1
    desk.tell(Timer(), due + 1e-6)
    assert len(desk.passes()) == 2


def test_a_late_node_gets_nothing_though_a_stream_of_its_ends() -> None:
    desk = Desk(node("x", round_cost=ROUND, limits=Limits(slots=2)))
    desk.submit(generate("g", "batch"))
    desk.finish(desk.passes()[0])
    desk.tell(LeaseStarted("x", 0, "g"))
    desk.submit(score("stuck", "batch"))
    assert len(desk.passes()) == 2
    for _ in range(20):
        if desk.router.state.nodes["x"].late:
            break
        desk.tell(Timer(), max(desk.now, desk.router.next_deadline() or 0.0))
    desk.submit(score("next", "batch"))
    desk.tell(LeaseEnded("x", 0, "g", 100))
    assert desk.answered() == ["g"]
    assert len(desk.passes()) == 2
    desk.finish(desk.passes()[1])
    assert len(desk.passes()) == 3


def test_where_the_likeliest_node_cannot_take_the_head_another_is_asked() -> None:
    desk = Desk(node("narrow", limits=Limits(view_tokens=1000)), node("wide", SLOW))
    desk.submit(score("r", "batch", 5000))
    assert [work.node_id for work in desk.passes()] == ["wide"]


def test_each_hungry_node_is_asked_in_its_turn() -> None:
    """Eight narrow nodes decline one after the other; the ninth hears of the work within as many events."""
    narrow = [node(f"n{index}", limits=Limits(view_tokens=1000)) for index in range(8)]
    desk = Desk(*narrow, node("wide", SLOW))
    for index in range(9):
        desk.submit(score(f"r{index}", "batch", 5000))
    assert [work.node_id for work in desk.passes()][:1] == ["wide"]


def test_neighbours_on_a_device_are_priced_anew_when_one_turns_busy_or_idle() -> None:
    desk = Desk(*(node(name, device_key="gpu", idle_neighbour=1.1, busy_neighbour=1.6) for name in ("a", "b")))
    nodes = desk.router.state.nodes
    desk.submit(score("r", "batch"))
    (work,) = desk.passes()
    (other,) = [holder for holder in nodes.values() if holder.id != work.node_id]
    assert other.factor == 1.6
    assert other.coef[1] == pytest.approx(1.6e-5)
    desk.finish(work)
    assert other.factor == 1.1
    assert other.coef[1] == pytest.approx(1.1e-5)


def test_a_stream_keeps_its_neighbours_priced_as_busy() -> None:
    specs = [node(n, device_key="gpu", busy_neighbour=1.6, round_cost=ROUND, limits=Limits(slots=1)) for n in "ab"]
    desk = Desk(*specs)
    desk.submit(generate("g", "batch"))
    (work,) = desk.passes()
    (other,) = [holder for holder in desk.router.state.nodes.values() if holder.id != work.node_id]
    desk.finish(work)
    assert other.factor == 1.6
    desk.tell(LeaseEnded(work.node_id, 0, "g", 100))
    assert other.factor == 1.0
