"""What a node says after it joined: refined constants, keys, a view that is gone."""

import math

import pytest

from mainspring.core.actions import Refuse
from mainspring.core.cost import Cost, CostFit
from mainspring.core.events import NodeRefined, WorkFailed
from mainspring.core.nouns import Limits
from mainspring.core.recovery import MAX_FAILURES, MAX_LATES
from router_rig import FAST, SLOW, Desk, measured, node, score


def refined(**fields: object) -> NodeRefined:
    return NodeRefined("n", 0, **fields)  # type: ignore[arg-type]


def test_refined_constants_change_the_next_prediction() -> None:
    desk = Desk(node(cost=FAST))
    desk.tell(refined(cost=SLOW, anchors=measured(SLOW)))
    desk.submit(score("r", view=2000, branches=8))
    (work,) = desk.passes()
    assert work.predicted_s == pytest.approx(SLOW.seconds(2000, 512), rel=0.05)


def test_measured_passes_are_learnt_again_on_refined_constants() -> None:
    fit = CostFit(FAST)
    for _ in range(40):
        fit.observe(2000, 64, 0, 2.0 * FAST.seconds(2000, 64))
    again = fit.refined(FAST, measured(FAST))
    assert again.cost.seconds(2000, 64) > 1.2 * FAST.seconds(2000, 64)


@pytest.mark.parametrize("cost", [Cost(-1.0, 0.0, 0.0), Cost(math.nan, 1.0, 1.0), Cost(0.0, 0.0, 0.0)])
def test_refined_constants_that_make_no_sense_change_nothing(cost: Cost) -> None:
    desk = Desk(node(cost=FAST))
    before = desk.router.state.nodes["n"].coef
    desk.tell(refined(cost=cost))
    desk.tell(refined(limits=Limits(pass_tokens=0)))
    assert desk.router.state.nodes["n"].coef == before
    assert desk.router.state.nodes["n"].spec.limits == Limits()
    assert desk.router.counters.rejected == 2


def test_keys_of_a_report_are_believed_and_a_fresh_one_replaces_them() -> None:
    desk = Desk(node())
    desk.tell(refined(gained=(("a", 2000), ("b", 2000))))
    desk.submit(score("r", view=2000, view_key="a"))
    (work,) = desk.passes()
    assert (work.parts[0].scan, work.parts[0].prefix) == (0, "a")
    desk.tell(refined(gained=(("b", 2000),), fresh=True))
    assert set(desk.router.state.nodes["n"].keys) == {"b"}
    assert set(desk.router.state.models["m"].holders) == {"b"}


def test_a_missing_view_goes_back_unblamed_and_is_scanned() -> None:
    desk = Desk(node())
    desk.tell(refined(gained=(("a", 2000),)))
    desk.submit(score("r", view=2000, view_key="a"))
    (first,) = desk.passes()
    actions = desk.tell(WorkFailed("n", 0, first.id, view_missing=True, dropped=("a",)))
    (second,) = desk.passes(actions)
    assert second.parts[0].scan == 2000
    shard = desk.router.state.jobs["r"].shards[0]
    assert (shard.failures, shard.solo) == (0, False)
    desk.finish(second)
    assert desk.answered() == ["r"]


def test_whoever_misses_a_view_that_was_never_there_is_blamed() -> None:
    desk = Desk(node())
    desk.submit(score("r", view=2000))
    for _ in range(MAX_FAILURES):
        desk.tell(WorkFailed("n", 0, desk.passes()[-1].id, view_missing=True))
    assert desk.refused() == {"r": "work_failed"}


def test_a_cache_that_thrashes_does_not_hold_a_request_for_ever() -> None:
    desk = Desk(node())
    desk.submit(score("r", "batch", view=2000, view_key="a"), 1.0)
    for tries in range(MAX_LATES + MAX_FAILURES + 2):
        if desk.refused():
            break
        desk.tell(refined(gained=(("a", 2000),)))
        actions = desk.tell(WorkFailed("n", 0, desk.passes()[-1].id, view_missing=True))
        assert desk.passes(actions) or any(isinstance(action, Refuse) for action in actions), tries
    assert desk.refused() == {"r": "work_failed"}


def test_a_chunk_says_that_more_will_follow() -> None:
    desk = Desk(node(limits=Limits(pass_tokens=1500)))
    desk.submit(score("r", "batch", view=2000, branches=4))
    parts = []
    for _ in range(8):
        if desk.answered():
            break
        work = desk.passes()[len(parts)]
        parts.append(work.parts[0])
        desk.finish(work)
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
    assert len(parts) > 1
