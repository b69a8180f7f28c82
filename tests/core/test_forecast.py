"""Water-filling over the nodes' timelines."""

import pytest

from mainspring.core.forecast import drained_s, passes, supply
from mainspring.core.nodestate import NodeState
from mainspring.core.nouns import Limits
from router_rig import FAST, SLOW, node


def test_a_late_node_has_no_time_to_give_beside_one_that_answers() -> None:
    good, late = NodeState(node("good")), NodeState(node("late"))
    late.late = True
    assert [holder.id for holder, _ in supply([good, late], 1.0)] == ["good"]
    assert [holder.id for holder, _ in supply([late], 1.0)] == ["late"]
    assert supply([late], 1.0)[0][1] >= 2.0


def test_small_requests_fill_passes_by_their_number() -> None:
    """A hundred of one token each: by time and tokens one pass, by parts ten, each with its fixed cost."""
    wide, narrow = NodeState(node("w")), NodeState(node("n", limits=Limits(pass_parts=10)))
    work = (100, 100, 100, 0)
    seconds = FAST.c1 * 100 + FAST.c2 * 100
    assert passes(wide, seconds, 100, 200, 1.0) == 1.0
    assert passes(narrow, seconds, 100, 200, 1.0) == 10.0
    more = drained_s([(narrow, 0.0)], work, 0.0) - drained_s([(wide, 0.0)], work, 0.0)
    assert more == pytest.approx(9.0 * FAST.c0)


def test_a_slow_node_counts_once_the_line_is_long_enough_for_it() -> None:
    fast, slow = NodeState(node("f")), NodeState(node("s", SLOW))
    short, long = (1, 4000, 100, 0), (100, 400_000, 10_000, 0)
    alone, both = [(fast, 0.0)], [(fast, 0.0), (slow, 0.0)]
    assert drained_s(both, short, 0.0) == drained_s(alone, short, 0.0)
    assert drained_s(both, long, 0.0) < 0.96 * drained_s(alone, long, 0.0)
