"""The JSON of `/status`: units, ages, what is shown when the router is silent."""

import math

import msgspec
import pytest

from mainspring.core.cost import Cost
from mainspring.core.nouns import Limits
from mainspring.gateway.dashboard.snapshot import PASSES, UNHEARD_S, GatewayFacts, error_of, snapshot_of
from mainspring.wire import messages as m
from support.dashboard import MODEL, classes, ended, node

FACTS = GatewayFacts(
    version="1", uptime_s=3.0, draining=False, ready=True, why="", default_model="", default_class="standard",
    keys=False, requests={"open": 1}, refused={},
)  # fmt: skip


def told(**fields: object) -> m.Status:
    model = m.ModelStatus(
        model=MODEL, aliases=("tiny", "other"), bundle="cd" * 32, limits=Limits(view_tokens=4096), queued=5
    )
    return m.Status(router=1, up_s=9.0, version="2", models=(model,), **fields)  # type: ignore[arg-type]


def test_seconds_become_what_people_read() -> None:
    status = told(nodes=(node("ant", cost=Cost(0.004, 1e-5, 2e-5, 3e-9), round_trip_s=0.0005),), classes=classes())
    shot = snapshot_of(FACTS, status, age_s=0.5, rates=None)
    (ant,) = shot.nodes
    assert ant.model == "tiny"
    assert ant.round_trip_ms == pytest.approx(0.5)
    assert msgspec.structs.astuple(ant.cost) == pytest.approx((4.0, 10.0, 20.0, 3.0))
    assert [(each.name, each.target_ms) for each in shot.classes] == [
        ("batch", None), ("interactive", 1000.0), ("standard", 10_000.0),
    ]  # fmt: skip
    assert shot.queues == {"tiny": 5}
    assert shot.router.reachable


def test_passes_are_as_old_as_the_status_makes_them_and_bounded() -> None:
    passes = tuple(ended(number, ago_s=2.0, measured_s=0.021) for number in range(PASSES + 50))
    shot = snapshot_of(FACTS, told(passes=passes), age_s=0.5, rates=None)
    assert len(shot.passes) == PASSES
    assert shot.passes[-1].id == PASSES + 49
    assert shot.passes[-1].ago_s == 2.5
    assert shot.passes[-1].measured_ms == pytest.approx(21.0)


def test_a_router_never_heard_and_one_silent_for_long_are_not_reachable() -> None:
    never = snapshot_of(FACTS, None, age_s=math.inf, rates=None)
    assert not never.router.reachable
    assert never.nodes == ()
    assert b"Infinity" not in msgspec.json.encode(never)
    silent = snapshot_of(FACTS, told(nodes=(node("ant"),)), age_s=UNHEARD_S + 1.0, rates=None)
    assert not silent.router.reachable
    assert silent.router.age_s == UNHEARD_S + 1.0
    assert [each.name for each in silent.nodes] == ["ant"]


def test_the_error_is_of_the_last_minute_and_of_either_sign() -> None:
    def off(ratio: float) -> m.PassStatus:
        return ended(1, predicted_s=0.1, measured_s=0.1 * ratio)

    error = error_of([off(0.5), off(1.0), off(1.2)])
    assert error.median == pytest.approx(0.2)
    assert error.p90 == pytest.approx(0.5)
    assert error.passes == 3
    assert error_of([]).median is None
    assert error_of([ended(1, predicted_s=0.0)]).passes == 0
    old = snapshot_of(FACTS, told(passes=(ended(1, ago_s=61.0),)), age_s=0.0, rates=None)
    assert old.prediction_error.passes == 0


def test_generation_is_told_where_there_are_slots() -> None:
    assert snapshot_of(FACTS, told(nodes=(node("ant"),)), age_s=0.0, rates=None).written is None
    wrote = m.Written(
        streams=9, rounds=40, slot_rounds=100, tokens=250, drafted=400, accepted=150, prefilled=300, cached=100,
        failed=1, histogram=(40, 20, 10),
    )  # fmt: skip
    status = told(
        nodes=(node("ant", slots=4, slots_used=3, written=wrote), node("bee", slots=2)),
        totals=m.Totals(tokens_s=33.0, written=wrote),
        classes=(m.ClassStatus(name="interactive", priority=2, target_s=1.0, streams=7, first_p50_s=0.2,
                               first_p99_s=0.5, gap_p50_s=0.02, gap_p99_s=0.03, token_s=0.1),),
    )  # fmt: skip
    shot = snapshot_of(FACTS, status, age_s=0.0, rates=None)
    facts = shot.written
    assert facts is not None
    assert (facts.streams, facts.slots, facts.tokens_s, facts.rounds, facts.failed) == (3, 6, 33.0, 40, 1)
    assert facts.acceptance_length == 2.5
    assert (facts.accepted_share, facts.cached_share) == (0.375, 0.25)
    assert facts.histogram == (40, 20, 10)
    assert [each.acceptance_length for each in shot.nodes] == [2.5, None]
    (interactive,) = shot.classes
    assert (interactive.first_p50_ms, interactive.gap_p50_ms, interactive.gap_target_ms) == (200.0, 20.0, 100.0)
    idle = snapshot_of(FACTS, told(nodes=(node("ant", slots=4),)), age_s=0.0, rates=None).written
    assert idle is not None
    assert idle.acceptance_length is None
