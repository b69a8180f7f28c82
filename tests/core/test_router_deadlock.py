"""Two idle nodes must never leave the head of the line to each other: it would wait for ever."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.core.cost import Cost
from router_rig import Desk, node, score

costs = st.builds(
    Cost,
    st.floats(1e-3, 0.05),
    st.floats(1e-5, 2e-4),
    st.floats(1e-5, 2e-4),
    st.sampled_from([0.0, 0.0, 1e-9, 1e-8, 1.3e-7]),
)


def test_an_attention_term_on_one_node_only() -> None:
    """Seen with real nodes: one had learnt an attention term, which the other left out when it looked that way."""
    bee = Cost(0.009938, 7.367e-05, 7.318e-05, 1.2724e-07)
    cat = Cost(0.023913, 12.883e-05, 12.525e-05)
    desk = Desk(node("bee", bee, anchors=()), node("cat", cat, anchors=()))
    desk.submit(score("r", "batch", view=500, branches=75, rows=24, view_key="v"))
    assert desk.passes()


@settings(max_examples=300, deadline=None)
@given(
    each=st.lists(costs, min_size=2, max_size=4),
    view=st.integers(50, 8000),
    branches=st.integers(1, 300),
    holds=st.integers(0, 15),
    slo=st.sampled_from(["batch", "standard"]),
)
def test_somebody_takes_it(each: list[Cost], view: int, branches: int, holds: int, slo: str) -> None:
    nodes = [
        node(f"n{i}", cost, anchors=(), keys=(("v", view),) if holds >> i & 1 else ()) for i, cost in enumerate(each)
    ]
    desk = Desk(*nodes)
    desk.submit(score("r", slo, view=view, branches=branches, rows=24, view_key="v"))
    for _ in range(400):
        if not desk.router.state.jobs:
            return
        held = [state.held[0] for state in desk.router.state.nodes.values() if state.held]
        assert held, "somebody works while something waits"
        works = {work.id: work for work in desk.passes()}
        desk.finish(works[held[0].pass_id])
    pytest.fail("it never ends")
