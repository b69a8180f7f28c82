"""Bad input ends in a typed error or a stated, safe reading; the loop goes on."""

from math import inf, nan

import pytest

from mainspring.core.actions import Refuse, RejectNode
from mainspring.core.cost import Cost, RoundCost
from mainspring.core.events import Cancel, NodeDraining, NodeJoined, NodeLeft, Timer, WorkDone, WorkFailed, WorkStarted
from mainspring.core.nouns import Limits, NodeSpec, Request, SloClass
from router_rig import Desk, generate, node, score


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (score("r", view=0), "bad_shape"),
        (score("r", view=-1), "bad_shape"),
        (score("r", branches=0), "bad_shape"),
        (score("r", rows=0), "bad_shape"),
        (score("r", rows=-3), "bad_shape"),
        (score("r", slo="platinum"), "bad_shape"),
        (score("r", deadline_s=nan), "bad_shape"),
        (score("r", deadline_s=inf), "bad_shape"),
        (score("r", deadline_s=-1.0), "deadline_passed"),
        (score("r", model="nobody"), "unknown_model"),
        (score("r", view=10**9), "too_large"),
        (score("r", rows=10**6), "too_large"),
        (score("r", numerics=("q4",)), "no_node"),
        (generate("r", tokens=-1), "bad_shape"),
        (generate("r", prefix_keys=(("p", -100),)), "bad_shape"),
        (generate("r"), "no_node"),
        (Request(id="r", model="m", view_tokens=5, branches=(1,), max_tokens=5), "bad_shape"),
    ],
)
def test_requests(request_: Request, code: str) -> None:
    desk = Desk(node())
    (refusal,) = desk.submit(request_)
    assert isinstance(refusal, Refuse)
    assert refusal.error.code == code
    desk.submit(score("next"))
    assert desk.admitted() == ["next"]


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (node(cost=Cost(-0.1, 1e-5, 1e-5)), "bad_cost"),
        (node(cost=Cost(nan, 1e-5, 1e-5)), "bad_cost"),
        (node(cost=Cost(0.0, 0.0, 0.0)), "bad_cost"),
        (node(cost=Cost(1e308, 1e308, 1e308)), "bad_cost"),
        (node(round_cost=RoundCost(inf, 0.0)), "bad_cost"),
        (node(round_cost=RoundCost(1e308, 0.0)), "bad_cost"),
        (node(limits=Limits(pass_tokens=0)), "bad_node"),
        (node(limits=Limits(slots=4)), "bad_node"),
        (node(busy_neighbour=0.5), "bad_node"),
        (node(idle_neighbour=nan), "bad_node"),
        (node(network_s=-1.0), "bad_node"),
        (node(network_s=nan), "bad_node"),
        (node(anchors=((100, -1, 0, 0.1),)), "bad_node"),
    ],
)
def test_nodes(spec: NodeSpec, code: str) -> None:
    desk = Desk()
    (reject,) = desk.tell(NodeJoined(spec))
    assert isinstance(reject, RejectNode)
    assert reject.error.code == code
    assert not desk.router.state.nodes


def test_an_earlier_life_of_a_node_can_not_come_back() -> None:
    desk = Desk(node(epoch=5))
    (reject,) = desk.tell(NodeJoined(node(epoch=5)))
    assert isinstance(reject, RejectNode)
    assert desk.tell(NodeJoined(node(epoch=6))) == []
    assert desk.router.state.nodes["n"].epoch == 6


@pytest.mark.parametrize("measured", [0.0, -1.0, inf, nan])
def test_impossible_measurements_still_answer(measured: float) -> None:
    desk = Desk(node())
    desk.submit(score("r"))
    desk.finish(desk.passes()[0], desk.now + 0.03, measured_s=measured)
    assert desk.answered() == ["r"]
    assert desk.router.state.nodes["n"].fit.rejected == 1


def test_a_clock_that_steps_back_stands_still() -> None:
    desk = Desk(node())
    desk.submit(score("a"), 100.0)
    desk.submit(score("b"), 50.0)
    desk.submit(score("c"), nan)
    assert desk.router.counters.clock_steps == 2
    assert desk.admitted() == ["a", "b", "c"]
    assert all(job.arrival_s == 100.0 for job in desk.router.state.jobs.values())


def test_a_target_below_the_network_time_is_refused_for_good() -> None:
    desk = Desk(node(network_s=0.02), classes=(SloClass("interactive", 2, 4.0, 0.01),))
    (refusal,) = desk.submit(score("r"))
    assert isinstance(refusal, Refuse)
    assert refusal.error.code == "contention"
    assert getattr(refusal.error, "retry_after_s", 1.0) is None


def test_reports_about_nothing_are_stale() -> None:
    desk = Desk(node())
    desk.submit(score("r"))
    work = desk.passes()[0]
    for event in (
        WorkDone("n", 1, work.id, 0.1),
        WorkDone("ghost", 0, work.id, 0.1),
        WorkDone("n", 0, 999, 0.1),
        WorkStarted("n", 7, work.id),
        WorkFailed("n", 0, -1),
        NodeLeft("n", 3),
        NodeLeft("ghost"),
        NodeDraining("ghost"),
        Cancel("nobody"),
    ):
        assert desk.tell(event) == []
    assert desk.router.counters.stale == 9
    desk.tell(WorkFailed("n", 0, work.id, failed=(0, 17, -4)))
    assert len(desk.passes()) == 2, "indices outside the pass are ignored"


def test_the_same_id_twice_is_one_request() -> None:
    desk = Desk(node())
    desk.submit(score("r"))
    assert desk.submit(score("r")) == []
    desk.finish(desk.passes()[0])
    assert desk.answered() == ["r"]
    assert desk.router.counters.rejected == 1


def test_a_timer_with_nothing_due_does_nothing() -> None:
    desk = Desk(node())
    assert desk.tell(Timer()) == []
    assert desk.router.next_deadline() is None
