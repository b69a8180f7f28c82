"""Here or elsewhere: one figure, the finish."""

import pytest

from mainspring.core.jobs import Job
from mainspring.core.nouns import DEFAULT_CLASSES
from mainspring.core.placement import best_other_s, share_by
from mainspring.core.state import ModelState
from router_rig import FAST, SLOW, Desk, node, score


def pair() -> tuple[Desk, ModelState]:
    desk = Desk(node("fast"), node("slow", SLOW))
    return desk, desk.router.state.models["m"]


@pytest.mark.parametrize("left", [1.0, 0.5, 0.1])
def test_what_higher_classes_leave_of_a_node_stretches_work_there(left: float) -> None:
    desk, model = pair()
    fast, slow = desk.router.state.nodes["fast"], desk.router.state.nodes["slow"]
    fast.left = {1: left}
    job = Job(score("r", "standard"), DEFAULT_CLASSES[1], desk.now)
    job.cut([(0, 8)], 1)
    own = FAST.seconds(2000, 512)
    finish = best_other_s(model, slow, job.shards[0], desk.now)
    assert finish == pytest.approx(desk.now + fast.net_s + own / left)
    work, until = (100, 200_000, 51_200, 0), desk.now + 1.0
    whole = share_by(model, slow, work, 0, until, desk.now)
    assert share_by(model, slow, work, 1, until, desk.now) == pytest.approx(left * whole)


def test_a_slow_node_takes_standard_work_where_the_fast_one_is_left_little() -> None:
    """Urgent work keeps the fast node busy to nine tenths: the slow one no longer leaves the head to it."""
    taken = []
    for urgent in (0, 60):
        desk, model = pair()
        desk.submit(score("running", "batch", 100, 1))
        desk.now += 0.005
        for _ in range(urgent):
            model.note_load(2, (1, 20_000, 0, 0), desk.now)
        model.shared_s = 0.0  # due to be worked out anew
        desk.submit(score("r", "standard", 6000))
        taken.append("slow" in {work.node_id for work in desk.passes()})
    assert taken == [False, True]
