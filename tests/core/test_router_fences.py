"""Lives and attempts: what an earlier life of a node, or an earlier slot of a stream, says is not believed."""

from mainspring.core.actions import OpenLease, Refuse
from mainspring.core.events import (
    LeaseEnded,
    LeaseProgress,
    LeaseStarted,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    Timer,
    WorkFailed,
)
from mainspring.core.nouns import Lease
from mainspring.core.recovery import MAX_FAILURES, MAX_LATES
from mainspring.core.state import MAX_MODELS
from router_rig import ROUND, Desk, Limits, generate, node, score

SLOTS = Limits(slots=2)


def opened(desk: Desk) -> list[Lease]:
    return [action.lease for action in desk.log if isinstance(action, OpenLease)]


def test_a_request_that_kills_a_node_is_found_though_the_node_is_back_before_it_is_missed() -> None:
    desk = Desk(node("a"))
    desk.submit(score("bad", "batch"))
    for epoch in (1, 2):
        work = desk.passes()[-1]
        assert [part.request_id for part in work.parts] == ["bad"]
        desk.start(work)
        desk.tell(NodeJoined(node("a", epoch=epoch)))
    assert desk.refused() == {"bad": "condemned"}
    desk.tell(NodeLeft("a", 0, crashed=True))
    assert "a" in desk.router.state.nodes, "the old life's end comes late and says nothing of the new one"


def test_an_earlier_life_cannot_drain_a_later_one() -> None:
    desk = Desk(node("a"))
    desk.tell(NodeJoined(node("a", epoch=1)))
    desk.tell(NodeDraining("a", 0))
    desk.submit(score("r", "batch"))
    assert len(desk.passes()) == 1
    assert desk.router.counters.stale == 1
    desk.tell(NodeDraining("a", 1))
    (refusal,) = desk.submit(score("s", "batch"))
    assert isinstance(refusal, Refuse)


def test_what_is_said_of_an_earlier_slot_is_not_believed_of_the_next() -> None:
    desk = Desk(node("n", round_cost=ROUND, limits=SLOTS))
    desk.submit(generate("g", "batch"))
    desk.tell(WorkFailed("n", 0, desk.passes()[-1].id))
    first, second = opened(desk)
    assert (first.attempt, second.attempt) == (0, 1)
    desk.finish(desk.passes()[-1])
    lease = desk.router.state.nodes["n"].leases["g"]
    desk.tell(LeaseStarted("n", 0, "g", attempt=0))
    desk.tell(LeaseProgress("n", 0, "g", 64, attempt=0))
    desk.tell(LeaseEnded("n", 0, "g", 100, attempt=0))
    assert not lease.live
    assert lease.tokens == 0
    assert not desk.answered()
    assert desk.router.counters.stale == 3
    desk.tell(LeaseStarted("n", 0, "g", attempt=1))
    desk.tell(LeaseEnded("n", 0, "g", 100, attempt=1))
    assert desk.answered() == ["g"]


def test_a_node_that_calls_everything_late_is_not_asked_for_ever() -> None:
    desk = Desk(node("x"))
    desk.submit(score("a", "batch"))
    sent = 0
    while sent < len(desk.passes()) and sent < 1000:
        desk.tell(WorkFailed("x", 0, desk.passes()[sent].id, late=True))
        sent += 1
    assert sent == MAX_LATES + MAX_FAILURES
    assert desk.refused() == {"a": "work_failed"}


def test_models_that_nobody_serves_any_more_are_forgotten() -> None:
    desk = Desk(node("stays"))
    desk.tell(NodeJoined(node("waits", model="waits")))
    desk.submit(score("r", "batch", model="waits"))
    desk.tell(NodeLeft("waits", 0, crashed=False))
    for index in range(3 * MAX_MODELS):
        desk.now += 0.001
        desk.tell(NodeJoined(node("roams", model=f"m{index}", epoch=index)))
    models = desk.router.state.models
    assert len(models) <= MAX_MODELS
    assert {"m", "waits", f"m{3 * MAX_MODELS - 1}", f"m{3 * MAX_MODELS - 2}"} <= set(models)
    (refusal,) = desk.submit(score("s", "batch", model="m0"))
    assert isinstance(refusal, Refuse)
    assert refusal.error.code == "unknown_model"
    desk.tell(NodeJoined(node("back", model="waits")))
    assert [part.request_id for part in desk.passes()[-1].parts] == ["r"]


def test_the_grace_of_a_model_forgotten_meanwhile_ends_in_nothing() -> None:
    desk = Desk(node("stays"))
    for index in range(2 * MAX_MODELS):
        desk.tell(NodeJoined(node("roams", model=f"m{index}", epoch=index)))
    assert "m0" not in desk.router.state.models
    desk.tell(Timer(), desk.now + 60.0)
    assert desk.router.next_deadline() is None


def test_the_model_longest_without_nodes_is_forgotten_first() -> None:
    desk = Desk(node("a", model="early"), node("b", model="late"))
    for index in range(MAX_MODELS - 2):
        desk.tell(NodeJoined(node(f"n{index}", model=f"m{index}")))
    desk.tell(NodeLeft("b", 0, crashed=False), desk.now + 1.0)
    desk.tell(NodeLeft("a", 0, crashed=False), desk.now + 1.0)
    desk.tell(NodeJoined(node("c", model="new")))
    assert "early" in desk.router.state.models
    assert "late" not in desk.router.state.models
