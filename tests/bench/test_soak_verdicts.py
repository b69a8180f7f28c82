"""What a soak says when something is wrong: a leak, a lost counter, a slow minute."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mainspring.bench.http.figures import LoadReport
from mainspring.wire import messages as m

BENCH = str(Path(__file__).parents[2] / "bench")


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script's module, which imports its neighbours by name."""
    monkeypatch.syspath_prepend(BENCH)
    for name in ("gateway", "soak_watch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import soak_watch

    yield soak_watch
    for name in ("gateway", "soak_watch"):
        sys.modules.pop(name, None)


def looks(watch: Any, *rss_mib: float) -> Any:
    rows = [watch.Look(5.0 * at, each, float(at), 0.0) for at, each in enumerate(rss_mib)]
    return SimpleNamespace(looks={"serve": rows})


def test_memory_that_grows_is_told_from_memory_that_swings(watch: Any) -> None:
    assert watch.memory(looks(watch, *[100.0, 120.0, 110.0] * 80), 8.0, 0.2) == []
    whole, late = watch.memory(looks(watch, *[100.0 + at for at in range(30)]), 8.0, 0.2)
    assert "serve grew by 20.0 MiB" in whole
    assert "12.00 MiB a minute in the last half" in late
    (few,) = watch.memory(looks(watch, 100.0, 100.0), 8.0, 0.2)
    assert "2 times only" in few


def test_a_heap_that_settles_passes_and_a_leak_as_large_over_the_whole_time_does_not(watch: Any) -> None:
    """240 looks are 20 minutes."""
    settles = [100.0 + 8.0 * (1.0 - 2.0 ** (-at / 40.0)) for at in range(240)]
    assert watch.memory(looks(watch, *settles), 12.0, 0.2) == []
    (leak,) = watch.memory(looks(watch, *[100.0 + 8.0 * at / 240.0 for at in range(240)]), 12.0, 0.2)
    assert "0.40 MiB a minute" in leak
    (steps,) = watch.memory(looks(watch, *[100.0 + (at > 200) * 13.0 for at in range(240)]), 20.0, 0.2)
    assert "in the last half" in steps


def test_a_heap_that_settles_too_high_does_not_pass(watch: Any) -> None:
    (high,) = watch.memory(looks(watch, *[100.0 + 20.0 * min(1.0, at / 80.0) for at in range(240)]), 9.0, 0.2)
    assert "from the first third to the last" in high


COUNTED = {"mainspring_open_requests": 1.0, "scores 200": 105.0, "scores 429": 50.0, "scores 499": 7.0}
BEFORE = {"scores 200": 5.0}
HEARD = {200: 98, 429: 50, 0: 10}
ROUTER = {"submitted": 107.0, "answered": 100.0, "cancelled": 5.0, "expired": 2.0}


def told(**change: float) -> m.Status:
    fields = {name: value for name, value in change.items() if name == "payload_bytes"}
    counters = ROUTER | {name: value for name, value in change.items() if name not in fields}
    return cast(m.Status, SimpleNamespace(counters=counters, payload_bytes=fields.get("payload_bytes", 0)))


def test_counters_that_agree_are_conserved(watch: Any) -> None:
    assert watch.conserved(HEARD, 10, COUNTED, told(), BEFORE) == []


@pytest.mark.parametrize(
    ("counted", "router", "wrong"),
    [
        ({"scores 429": 49.0}, {}, "heard 429 50 times, the gateway said it 1 fewer"),
        ({"scores 200": 102.0}, {}, "heard 200 98 times, the gateway said it 1 fewer"),
        ({"scores 499": 9.0}, {}, "11 requests that nobody heard of, 10 clients left"),
        ({"mainspring_open_requests": 2.0}, {}, "2 requests open"),
        ({}, {"answered": 99.0}, "took 107 requests and ended 106"),
        ({}, {"open": 1.0, "answered": 99.0}, "counts 1 open"),
        ({}, {"faults": 1.0}, "counts 1 faults"),
        ({}, {"payload_bytes": 3}, "holds 3 bytes"),
    ],
)
def test_a_counter_that_lost_one_is_named(
    watch: Any, counted: dict[str, float], router: dict[str, float], wrong: str
) -> None:
    (found,) = watch.conserved(HEARD, 10, COUNTED | counted, told(**router), BEFORE)
    assert wrong in found


def test_a_slow_minute_is_named_unless_the_machine_was_taken_away(watch: Any) -> None:
    slices = tuple(SimpleNamespace(from_s=60.0 * at, answered_rate=rate) for at, rate in enumerate((20, 20, 12, 20)))
    report = cast(LoadReport, SimpleNamespace(slices=slices, seconds=240.0))

    def shares(third: float) -> Any:
        return SimpleNamespace(got=lambda _name, from_s, _to_s: third if from_s == 120.0 else 0.9)

    (slow,), got = watch.throughput(report, shares(0.9), ("serve", "node"))
    assert "from 120 s 12.0/s" in slow
    assert got == [0.9] * 4
    assert watch.throughput(report, shares(0.5), ("serve", "node"))[0] == []
