"""Streams beside each other: who gets a slot, who is told at once that the rate or the first token would be missed."""

from collections.abc import Iterator

import pytest

from mainspring.core.actions import Admit, Refuse
from mainspring.core.batching import on_grid
from mainspring.core.cost import RoundCost
from mainspring.core.events import LeaseEnded, LeaseProgress, LeaseStarted
from mainspring.core.nouns import GRID, NodeSpec, Request
from mainspring.core.refusals import ContentionError
from mainspring.errors import TooLargeError
from mainspring.simulate.workload import Shape, poisson
from router_rig import FAST, Desk, Limits, generate, node, play, score

ROUND = RoundCost(0.010, 0.010)
"""Nine streams fit in an interactive gap of 0.1 s, though there are more slots."""
SLOTS = Limits(slots=32)


def opened(desk: Desk, count: int, slo: str = "interactive", tokens: int = 100) -> None:
    for serial in range(count):
        name = f"g{serial}"
        desk.submit(generate(name, slo, prompt=100, tokens=tokens))
        for work in desk.passes():
            if work.id in desk.router.state.passes:
                desk.finish(work)
        desk.tell(LeaseStarted("n", 0, name))


def test_a_stream_that_would_slow_the_others_below_their_rate_is_refused_at_once_and_told_when() -> None:
    desk = Desk(node(limits=SLOTS, round_cost=ROUND))
    opened(desk, 9)
    assert len(desk.router.state.nodes["n"].leases) == 9
    for serial in range(9):
        desk.tell(LeaseProgress("n", 0, f"g{serial}", 50))
    (refusal,) = desk.submit(generate("more", prompt=100, tokens=100))
    assert isinstance(refusal, Refuse)
    assert isinstance(refusal.error, ContentionError)
    retry_s = refusal.error.retry_after_s
    assert retry_s is not None
    assert 3.5 < retry_s < 5.2, "fifty tokens of a tenth of a second each are left, and it may wait its target"
    for serial in range(9):
        desk.tell(LeaseEnded("n", 0, f"g{serial}", 100), desk.now + retry_s if not serial else desk.now)
    assert isinstance(desk.submit(generate("again", prompt=100, tokens=100))[0], Admit)


def test_streams_that_took_less_than_they_might_have_keep_nobody_out() -> None:
    """Each may have 1,000 tokens and takes 60, each in 30 ms: a slot comes free in two seconds and is waited for."""
    desk = Desk(node(limits=Limits(slots=2), round_cost=ROUND))
    for turn in range(10):
        opened(desk, 2, "standard", tokens=1000)
        if turn == 0:
            assert isinstance(desk.submit(generate("early", "standard", prompt=100, tokens=1000))[0], Refuse)
        for serial in range(2):
            desk.tell(LeaseEnded("n", 0, f"g{serial}", 60), desk.now + 0.9)
    opened(desk, 2, "standard", tokens=1000)
    assert isinstance(desk.submit(generate("unheard", "standard", prompt=100, tokens=1000))[0], Refuse), (
        "15 s at 0.25 s"
    )
    for serial in range(2):
        desk.tell(LeaseProgress("n", 0, f"g{serial}", 32), desk.now + 0.48)
    assert isinstance(desk.submit(generate("late", "standard", prompt=100, tokens=1000))[0], Admit)
    for serial in range(2):
        desk.tell(LeaseProgress("n", 0, f"g{serial}", 500))
    assert isinstance(desk.submit(generate("later", "standard", prompt=100, tokens=1000))[0], Admit), (
        "one that takes more than its like is taken to end soon"
    )


def test_a_class_in_no_hurry_waits_for_the_slot_instead() -> None:
    desk = Desk(node(limits=SLOTS, round_cost=ROUND))
    opened(desk, 9)
    assert isinstance(desk.submit(generate("batch", "batch", prompt=100, tokens=100))[0], Admit)
    assert "batch" not in desk.router.state.nodes["n"].leases, "it would slow the others down"
    desk.tell(LeaseEnded("n", 0, "g0", 100))
    assert "batch" in desk.router.state.nodes["n"].leases


def test_a_rate_that_no_node_keeps_even_idle_is_contention_without_a_retry() -> None:
    desk = Desk(node(limits=SLOTS, round_cost=RoundCost(0.2, 0.01)))
    (refusal,) = desk.submit(generate("g", prompt=100, tokens=100))
    assert isinstance(refusal, Refuse)
    assert isinstance(refusal.error, ContentionError)
    assert refusal.error.retry_after_s is None
    assert isinstance(desk.submit(generate("slower", "standard", prompt=100, tokens=100))[0], Admit)


def test_prompts_ahead_that_take_longer_than_the_target_refuse_the_next() -> None:
    desk = Desk(node(limits=SLOTS, round_cost=RoundCost(0.001, 0.0001)))
    told = [desk.submit(generate(f"g{serial}", prompt=20_000, tokens=10))[0] for serial in range(12)]
    kinds = [type(each) for each in told]
    assert kinds[0] is Admit
    assert kinds[-1] is Refuse
    assert desk.refused()[f"g{11}"] == "contention"


def test_memory_of_all_streams_and_the_context_of_one_are_different_limits() -> None:
    desk = Desk(node(limits=Limits(slots=4, context_tokens=1000, stream_tokens=600), round_cost=ROUND))
    desk.submit(generate("long", prompt=600, tokens=1))
    assert desk.refused() == {"long": "too_large"}
    for name in ("a", "b"):
        desk.submit(generate(name, "batch", prompt=400, tokens=200))
        for work in desk.passes():
            if work.id in desk.router.state.passes:
                desk.finish(work)
    assert [*desk.router.state.nodes["n"].leases] == ["a"]


def test_a_prompt_longer_than_any_scored_view_is_a_prompt_all_the_same() -> None:
    """A view has to fit the cache of views between its pieces; a prompt lies in its slot."""
    desk = Desk(node(limits=Limits(slots=4, view_tokens=500, stream_tokens=3000), round_cost=ROUND))
    desk.submit(generate("prompt", "batch", prompt=2900, tokens=100))
    while any(work.id in desk.router.state.passes for work in desk.passes()):
        for work in desk.passes():
            if work.id in desk.router.state.passes:
                desk.finish(work)
    assert "prompt" in desk.router.state.nodes["n"].leases
    (refusal,) = desk.submit(generate("reply", "batch", prompt=2900, tokens=101))
    assert isinstance(refusal, Refuse)
    assert isinstance(refusal.error, TooLargeError)
    assert (refusal.error.param, refusal.error.limit, refusal.error.actual) == ("max_tokens", 3000, 3001)
    (refusal,) = desk.submit(score("view", view=501))
    assert isinstance(refusal, Refuse)
    assert isinstance(refusal.error, TooLargeError)
    assert (refusal.error.param, refusal.error.limit, refusal.error.actual) == ("view_tokens", 500, 501)
    assert "501 tokens" in refusal.error.message
    assert "than 500" in refusal.error.message
    assert isinstance(desk.submit(score("shorter", view=500))[0], Admit)


@pytest.mark.parametrize(
    ("start", "scan", "most", "ends"),
    [(0, 100, 500, 64), (100, 100, 500, 192), (100, 20, 500, 128), (100, 28, 500, 128),
     (100, 1, 20, 120), (64, 64, 500, 128)],
)  # fmt: skip
def test_chunks_of_prompts_end_on_the_grid(start: int, scan: int, most: int, ends: int) -> None:
    assert start + on_grid(start, scan, most) == ends


def test_a_long_prompt_beside_streams_comes_in_chunks_on_the_grid() -> None:
    desk = Desk(node(limits=SLOTS, round_cost=ROUND))
    opened(desk, 3, tokens=500)
    before = len(desk.passes())
    desk.submit(generate("long", "standard", prompt=20_011, tokens=20))
    while any(work.id in desk.router.state.passes for work in desk.passes()):
        for work in desk.passes():
            if work.id in desk.router.state.passes:
                desk.finish(work)
    ends = [work.parts[0].view_to for work in desk.passes()[before:]]
    assert len(ends) > 2
    assert all(end % GRID == 0 for end in ends[:-1])
    assert ends[-1] == 20_011
    most = 0.1 - ROUND.seconds(3, 0)
    assert all(work.predicted_s <= most + 1e-9 for work in desk.passes()[before:])


def test_admitted_streams_keep_first_token_and_rate_at_twice_the_capacity() -> None:
    """Nine streams of 4 s a node: 2.2 a second; 4.5 come. Who is let in has the first token in time, and its tokens at
    the promised rate, whoever else is there."""
    nodes: list[NodeSpec] = [node("n", FAST, limits=SLOTS, round_cost=ROUND)]
    chat = Shape(name="g", slo="interactive", view_tokens=400, view_spread=0.5, max_tokens=(40, 40))
    outcomes, simulation = play([*until(poisson([(1.0, chat)], 4.5, 3).arrivals(), 60.0)], nodes, until=60.0)
    admitted = [each for each in outcomes.values() if each.admitted]
    assert len(admitted) > 60
    assert any(each.state == "refused" for each in outcomes.values())
    assert {each.state for each in admitted} == {"answered"}, "nobody let in and turned away later"
    assert all(each.in_time for each in admitted)
    for each in admitted:
        assert each.first_s is not None
        assert (each.done_s - each.first_s) / (each.request.max_tokens - 1) <= 0.1 + 1e-6
    assert not simulation.nodes["n"].streams


def until(arrivals: Iterator[tuple[float, Request]], end_s: float) -> Iterator[tuple[float, Request]]:
    for when, request in arrivals:
        if when >= end_s:
            return
        yield when, request


@pytest.mark.parametrize(("held", "starts"), [(640, 640), (700, 700), (900, 700)])
def test_a_prompt_goes_on_from_where_the_node_keeps_it_and_not_from_where_its_key_says(held: int, starts: int) -> None:
    desk = Desk(node(limits=SLOTS, round_cost=ROUND, keys=(("turn", held),)))
    desk.submit(generate("g", prompt=1000, prefix_keys=(("turn", 700),)))
    [part] = desk.passes()[0].parts
    assert (part.view_from, part.prefix, part.view_to) == (starts, "turn", 1000)
    desk.submit(generate("whole", "standard", prompt=700, view_key="turn"))
    desk.finish(desk.passes()[0])
    [part] = desk.passes()[1].parts
    assert (part.view_from, part.opens_lease) == (starts, True)
