"""Admission at arrival and the honesty of refusals.

"Otherwise unchanged world" is taken literally: the same trace is played again with one more request in it.
"""

import statistics
from itertools import pairwise

import pytest

from mainspring.core.actions import Admit, Refuse
from mainspring.core.cost import Cost
from mainspring.core.nouns import DEFAULT_CLASSES, NodeSpec, Request, SloClass
from mainspring.core.promises import MAX_RETRY_S, Promises
from mainspring.simulate.record import Outcome
from router_rig import FAST, SLOW, Desk, generate, node, play, score

FLEETS = {
    "one": [node("a")],
    "two": [node("a"), node("b")],
    "mixed": [node("a"), node("b"), node("c", SLOW), node("d", SLOW)],
    "eight": [node(f"x{i}") for i in range(8)],
}
SHAPES = {"small": (2000, 8), "long": (8000, 4), "wide": (4000, 100)}
Entries = list[tuple[float, Request]]


START_S = 60.0


def rush(count: int, shape: tuple[int, int], nodes: int) -> Entries:
    """A simultaneous rush on a fleet that has run long enough to know its own error."""
    view, branches = shape
    warm = [(1.0 + i // nodes * 2.0 + i % nodes * 1e-6, score(f"w{i:03}", "batch")) for i in range(20 * nodes)]
    return warm + [(START_S + i * 1e-6, score(f"r{i:04}", view=view, branches=branches)) for i in range(count)]


def first_refusal(fleet: list[NodeSpec], shape: tuple[int, int]) -> tuple[Entries, int, float]:
    entries = rush(400, shape, len(fleet))
    outcomes, _ = play(entries, fleet)
    for index, outcome in enumerate(outcomes.values()):
        if outcome.state == "refused":
            assert outcome.retry_after_s is not None
            return entries, index, outcome.retry_after_s
    raise AssertionError("nothing was refused")


def probe(entries: Entries, fleet: list[NodeSpec], shape: tuple[int, int], at: float, *, returning: bool) -> bool:
    view, branches = shape
    trace = [*entries, (at, score("probe", view=view, branches=branches))]
    outcomes, _ = play(trace, fleet, returning=returning)
    return outcomes["probe"].admitted


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fleet", FLEETS)
def test_a_like_request_is_admitted_at_the_time_and_not_at_half_of_it(fleet: str, shape: str) -> None:
    nodes, size = FLEETS[fleet], SHAPES[shape]
    entries, index, retry = first_refusal(nodes, size)
    until = entries[: index + 1]
    assert probe(until, nodes, size, entries[index][0] + retry, returning=False)
    if retry > 0.005:  # below lies the grain of the forecast: a third of a fixed cost is 1.3 ms here
        assert not probe(until, nodes, size, entries[index][0] + retry / 2.0, returning=False)


def test_median_excess_is_under_a_fifth() -> None:
    """A request three times as large as those that filled the line: the time to wait is no mere remainder."""
    excess = []
    for nodes in FLEETS.values():
        for view, branches in SHAPES.values():
            entries, index, _ = first_refusal(nodes, (view, branches))
            size, start = (min(18_000, 3 * view), branches), entries[index][0]
            outcomes, _ = play([*entries[:index], (start, score("probe", view=size[0], branches=branches))], nodes)
            retry, low = outcomes["probe"].retry_after_s, 0.0
            assert retry is not None
            assert probe(entries[:index], nodes, size, start + retry, returning=False)
            high = retry
            for _ in range(8):
                middle = (low + high) / 2.0
                if probe(entries[:index], nodes, size, start + middle, returning=False):
                    high = middle
                else:
                    low = middle
            excess.append(retry / high - 1.0)
    print("\nexcess", [round(value, 3) for value in sorted(excess)])
    assert statistics.median(excess) < 0.2


def test_a_hundred_simultaneous_refusals_get_a_hundred_times_and_all_are_kept() -> None:
    nodes, size = FLEETS["eight"], SHAPES["small"]
    entries = rush(400, size, len(nodes))
    outcomes, _ = play(entries, nodes)
    times = [o.retry_after_s for o in outcomes.values() if o.state == "refused"]
    assert len(times) >= 100
    assert all(time is not None for time in times)
    assert times == sorted(times)  # type: ignore[type-var]
    assert len(set(times)) == len(times)
    outcomes, _ = play(entries, nodes, returning=True)
    again = [o for name, o in outcomes.items() if name.endswith("+") and not name.endswith("++")]
    assert len(again) >= 100
    assert sum(o.admitted for o in again) >= 0.98 * len(again)
    assert all(o.in_time for o in outcomes.values() if o.admitted)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fleet", ["one", "eight"])
def test_promises_follow_each_other_at_the_pace_of_the_fleet(fleet: str, shape: str) -> None:
    nodes, (view, branches) = FLEETS[fleet], SHAPES[shape]
    outcomes, _ = play(rush(400, (view, branches), len(nodes)), nodes)
    times = [o.retry_after_s for o in outcomes.values() if o.retry_after_s is not None]
    pace = (times[-1] - times[0]) / (len(times) - 1)
    work = FAST.c1 * view + FAST.c2 * 64 * branches
    assert work / len(nodes) <= pace <= 1.05 * work / len(nodes)


def line_of(seconds: float, slo: str, *extra: tuple[float, Request]) -> Entries:
    """A line of so many seconds of usual work on one node, then somebody else."""
    count = int(seconds / FAST.seconds(8000, 256))
    usual = [(START_S + i * 1e-6, score(f"u{i:03}", slo, view=8000, branches=4)) for i in range(count)]
    return rush(0, (1, 1), 1) + usual + list(extra)


def test_a_full_line_turns_away_what_costs_more_a_token() -> None:
    """Equal work, equal place: at 8.5 s of 10 the one that costs half more a token comes back, at an honest time."""
    dear, cheap = {"view": 3000, "branches": 60}, {"view": 10_000, "branches": 6}
    assert FAST.seconds(3000, 3840) == pytest.approx(FAST.seconds(10_000, 384), abs=0.002)

    def ask(shape: dict[str, int], seconds: float, after: float = 0.1, slo: str = "standard") -> Outcome:
        probe = (START_S + after, score("probe", slo, **shape))  # type: ignore[arg-type]
        return play(line_of(seconds, slo, probe), FLEETS["one"])[0]["probe"]

    assert ask(cheap, 8.5).admitted
    refused = ask(dear, 8.5)
    assert refused.code == "contention"
    assert refused.retry_after_s is not None
    assert ask(dear, 8.5, 0.1 + refused.retry_after_s).admitted
    assert not ask(dear, 8.5, 0.1 + refused.retry_after_s / 2.0).admitted
    assert ask(dear, 4.0).admitted
    assert ask(dear, 0.6, 0.001, slo="interactive").admitted, "the top class answers for its own target alone"


def test_where_nobody_waits_a_dear_request_is_asked_nothing() -> None:
    """It comes while a pass runs; another of its kind waits already when the next comes."""
    desk = Desk(node("x", Cost(2.5, 1e-5, 1e-3)))
    for index in range(60):
        desk.submit(score(f"u{index}", "standard", view=8000, branches=1, rows=1))
        desk.finish(desk.passes()[-1])
    desk.submit(score("runs", "standard", view=8000, branches=1, rows=1))
    dear = {"view": 1000, "branches": 1, "rows": 90}
    (admitted, *_) = desk.submit(score("dear", "standard", **dear))
    assert isinstance(admitted, Admit)
    assert admitted.predicted_s > 5.0
    (refused, *_) = desk.submit(score("dearer", "standard", **dear))
    assert isinstance(refused, Refuse)


def test_a_dear_request_is_asked_for_a_share_of_what_it_leaves_of_its_target() -> None:
    """Alone it takes 5.4 s of 10: half of ten to spare would keep it out for as long as anybody waits."""
    probe = (START_S + 0.1, score("probe", "standard", view=2000, branches=4200))
    assert FAST.seconds(2000, 4200 * 64) == pytest.approx(5.4)
    outcomes, _ = play(line_of(1.5, "standard", probe), FLEETS["one"])
    assert outcomes["probe"].admitted
    assert not play(line_of(3.0, "standard", probe), FLEETS["one"])[0]["probe"].admitted


def test_a_dear_request_is_asked_for_half_of_its_target_at_most() -> None:
    """Eight times as dear: with 4.5 s of 10 before it, it still comes in; with a held view it is asked nothing."""
    costly, nodes = Cost(0.004, 1e-5, 1e-3), [node("a", Cost(0.004, 1e-5, 1e-3))]
    count = int(8.5 / costly.seconds(8000, 1))

    def ask(many: int, **fields: object) -> Outcome:
        usual = [
            (START_S + i * 1e-6, score(f"u{i:03}", "standard", view=8000, branches=1, rows=1)) for i in range(many)
        ]
        probe = (START_S + 0.01, score("probe", "standard", view=1000, branches=1, rows=90, **fields))
        return play([*rush(0, (1, 1), 1), *usual, probe], nodes)[0]["probe"]

    assert ask(count // 2).admitted
    assert not ask(count).admitted


def test_simultaneous_dear_refusals_change_nothing_for_each_other() -> None:
    """Else a crowd of them became what is usual: the later were told to come before the earlier, all far too late."""
    dear = [(START_S + 0.05 + i * 1e-6, score(f"d{i:03}", "standard", view=3000, branches=60)) for i in range(120)]
    entries = line_of(9.0, "standard", *dear)
    outcomes, _ = play(entries, FLEETS["one"])
    times = [o.retry_after_s or 0.0 for name, o in outcomes.items() if name.startswith("d") and o.state == "refused"]
    assert len(times) >= 100
    assert all(early < late for early, late in pairwise(times))
    for share, admitted in ((1.0, True), (0.5, False)):
        late = (START_S + 0.05 + share * times[0], score("probe", "standard", view=3000, branches=60))
        assert play([*entries, late], FLEETS["one"])[0]["probe"].admitted is admitted


def test_a_view_that_is_held_costs_nothing_a_token() -> None:
    nodes = [node("a", keys=(("hot", 6000),))]

    def ask(key: str) -> Outcome:
        probe = (START_S + 0.1, score("probe", "standard", view=6000, branches=60, view_key=key))
        return play(line_of(8.8, "standard", probe), nodes)[0]["probe"]

    assert ask("hot").admitted
    assert not ask("cold").admitted


def test_a_deadline_of_its_own_is_all_that_binds_a_dear_request() -> None:
    """Half of a class's target to spare would be more than all it has: refused with a time, and at that time again."""
    usual, dear = {"view": 8000, "branches": 4}, {"view": 2000, "branches": 60}
    line = [(START_S + i * 1e-6, score(f"u{i:03}", "standard", deadline_s=4.0, **usual)) for i in range(15)]
    probe = (START_S + 0.1, score("probe", "standard", deadline_s=4.0, **dear))
    outcomes, _ = play([*rush(0, (1, 1), 1), *line, probe], FLEETS["one"])
    assert outcomes["probe"].admitted
    assert outcomes["probe"].in_time


def test_promises_reserve_nothing() -> None:
    nodes, size = FLEETS["one"], SHAPES["small"]
    entries = rush(80, size, 1)
    outcomes, _ = play(entries, nodes)
    last = [o.retry_after_s for o in outcomes.values() if o.retry_after_s is not None][-1]
    assert probe(entries, nodes, size, START_S + last / 2.0, returning=False), "nobody came back, so there is room"


def test_beyond_a_minute_there_is_no_retry() -> None:
    slow = SloClass("interactive", 2, 4.0, 1.0)
    desk = Desk(node(), classes=(slow,))
    retries = []
    for serial in range(700):
        actions = desk.submit(score(f"r{serial}", view=16_000))
        retries += [getattr(action.error, "retry_after_s", None) for action in actions if isinstance(action, Refuse)]
    assert retries[0] is not None
    assert retries[-1] is None
    assert max(time for time in retries if time is not None) <= MAX_RETRY_S


def test_no_retry_where_none_can_help() -> None:
    desk = Desk(node(cost=SLOW))
    for request in (
        score("too slow even alone", view=15_000),
        score("deadline over", deadline_s=0.0),
        score("deadline long over", deadline_s=-5.0),
    ):
        refusal = desk.submit(request)[0]
        assert isinstance(refusal, Refuse)
        assert getattr(refusal.error, "retry_after_s", None) is None
    for serial in range(40):
        desk.submit(score(f"fill{serial}", "standard"))
    (refusal,) = desk.submit(score("bound", "batch", deadline_s=0.5))
    assert isinstance(refusal, Refuse)
    assert getattr(refusal.error, "retry_after_s", None) is None, "its deadline stands, a retry only comes later"


def test_forecasts_count_the_queue_ahead_by_priority() -> None:
    desk = Desk(node())
    for serial in range(100):
        desk.submit(score(f"b{serial}", "batch"))
    (low,) = (a for a in desk.submit(score("low", "batch")) if isinstance(a, Admit))
    (high,) = (a for a in desk.submit(score("high")) if isinstance(a, Admit))
    assert low.predicted_s > 3.0
    assert high.predicted_s < 0.6


def test_jumping_ahead_never_breaks_an_admitted_deadline() -> None:
    entries: Entries = [(1.0, score(f"r{i:03}", "standard", deadline_s=4.0)) for i in range(130)]
    entries += [(1.1 + i * 0.001, score(f"jump{i}", "standard", deadline_s=1.5)) for i in range(40)]
    outcomes, _ = play(entries, FLEETS["one"])
    assert all(o.in_time for o in outcomes.values() if o.admitted)


def test_lease_admission_promises_first_token_and_rate_only() -> None:
    desk = Desk(node())
    (refusal,) = desk.submit(generate("no slots anywhere"))
    assert isinstance(refusal, Refuse)
    assert refusal.error.code == "no_node"


def test_promises_are_redeemed_oldest_first_and_expire() -> None:
    promises = Promises()
    promises.add(5.0, 1, (1, 10, 10, 0))
    promises.add(6.0, 2, (1, 20, 20, 0))
    promises.redeem(4.0)
    assert promises.total == (2, 30, 30, 0), "nobody could come yet"
    promises.redeem(5.0)
    assert promises.total == (1, 20, 20, 0)
    promises.prune(7.5)
    assert len(promises) == 0
    assert promises.total == (0, 0, 0, 0)


def test_default_classes_are_as_documented() -> None:
    assert [(c.name, c.priority, c.weight, c.target_s) for c in DEFAULT_CLASSES] == [
        ("interactive", 2, 4.0, 1.0),
        ("standard", 1, 2.0, 10.0),
        ("batch", 0, 1.0, None),
    ]
