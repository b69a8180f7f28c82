import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.fakes import FakeClock, FakeLoad, fake_host
from mainspring.bench import Arm, Options, measure
from mainspring.bench.harness import palindrome


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def working(
    clock: FakeClock, log: list[str], name: str, seconds: float = 1.0, units: float = 10.0
) -> Callable[[], float]:
    def run() -> float:
        log.append(name)
        clock.advance(seconds)
        return units

    return run


def test_a_round_is_a_palindrome() -> None:
    arms = [Arm(name, lambda: 1.0) for name in "ABC"]
    order = [(number, arm.name) for number, arm in palindrome(arms, 2)]
    assert order == [(0, n) for n in "ABCCBA"] + [(1, n) for n in "ABCCBA"]


def test_warm_ups_run_first_and_are_not_counted(clock: FakeClock, tmp_path: Path) -> None:
    log: list[str] = []
    cold = iter([100.0, 100.0])  # the first two runs of A are slow

    def slow_at_first() -> float:
        log.append("A")
        clock.advance(next(cold, 1.0))
        return 10.0

    arms = [Arm("A", slow_at_first), Arm("B", working(clock, log, "B"))]
    report = measure(arms, Options(rounds=3, warmups=2), title="t", unit="tokens", host=fake_host(tmp_path, clock))
    assert "".join(log) == "ABAB" + "ABBA" * 3
    assert [sample.arm for sample in report.samples] == list("ABBA" * 3)
    assert [sample.position for sample in report.samples] == list(range(12))
    assert report.arms[0].samples == 6
    assert report.arms[0].rate == pytest.approx(10.0)


def test_linear_drift_cancels_in_every_round(clock: FakeClock, tmp_path: Path) -> None:
    step = iter(range(100))

    def slower_each_time() -> float:
        clock.advance(1.0 + next(step))
        return 1.0

    arms = [Arm(name, slower_each_time) for name in "AB"]
    report = measure(arms, Options(rounds=4, warmups=0), title="t", unit="u", host=fake_host(tmp_path, clock))
    assert report.ratios[0].ratio == pytest.approx(1.0)
    assert report.ratios[0].interval is not None
    assert report.ratios[0].interval.low == pytest.approx(1.0)


def test_setup_is_untimed_and_sync_is_billed(clock: FakeClock, tmp_path: Path) -> None:
    pending = [0.0]

    def setup() -> None:
        pending[0] = 50.0  # queued work of the setup: drained by the first sync, before the clock

    def run() -> float:
        clock.advance(1.0)
        pending[0] = 2.0
        return 6.0

    def sync() -> None:
        clock.advance(pending[0])
        pending[0] = 0.0

    arm = Arm("A", run, setup, sync)
    report = measure([arm], Options(rounds=1, warmups=0), title="t", unit="u", host=fake_host(tmp_path, clock))
    assert [sample.elapsed_ns for sample in report.samples] == [3_000_000_000] * 2
    assert report.arms[0].rate == pytest.approx(2.0)


def test_garbage_is_not_collected_while_the_clock_runs(clock: FakeClock, tmp_path: Path) -> None:
    seen: list[bool] = []

    def run() -> float:
        seen.append(gc.isenabled())
        clock.advance(1.0)
        return 1.0

    measure([Arm("A", run)], Options(rounds=1, warmups=1), title="t", unit="u", host=fake_host(tmp_path, clock))
    assert seen == [False] * 3
    assert gc.isenabled()


def test_garbage_collection_and_lock_come_back_after_a_failing_arm(clock: FakeClock, tmp_path: Path) -> None:
    def fail() -> float:
        raise RuntimeError("planted")

    host = fake_host(tmp_path, clock)
    for _ in range(2):  # the second time would find the lock held
        with pytest.raises(RuntimeError, match="planted"):
            measure([Arm("A", fail)], Options(wait=False), title="t", unit="u", host=host)
    assert gc.isenabled()


@pytest.mark.parametrize("units", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_work_is_refused(clock: FakeClock, tmp_path: Path, units: float) -> None:
    arm = Arm("A", working(clock, [], "A", units=units))
    with pytest.raises(ValueError, match="'A' did"):
        measure([arm], Options(rounds=1), title="t", unit="u", host=fake_host(tmp_path, clock))


def test_no_time_at_all_is_refused(clock: FakeClock, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="in 0 ns"):
        measure([Arm("A", lambda: 1.0)], title="t", unit="u", host=fake_host(tmp_path, clock))


@pytest.mark.parametrize("names", ["", "AA"])
def test_arms_need_distinct_names(clock: FakeClock, tmp_path: Path, names: str) -> None:
    arms = [Arm(name, lambda: 1.0) for name in names]
    with pytest.raises(ValueError, match="distinct names"):
        measure(arms, title="t", unit="u", host=fake_host(tmp_path, clock))


@pytest.mark.parametrize(
    ("looks", "during", "quiet"),
    [((0.0,), 0.0, True), ((3.0,), 0.0, False), ((0.0,), 2.0, False), ((0.0,), None, True)],
)
def test_quiet_means_before_and_during(
    clock: FakeClock, tmp_path: Path, looks: tuple[float, ...], during: float | None, quiet: bool
) -> None:
    host = fake_host(tmp_path, clock, FakeLoad(looks, during))
    report = measure([Arm("A", working(clock, [], "A"))], Options(rounds=1), title="t", unit="u", host=host)
    assert report.quiet is quiet
    assert report.others_cores == during
    assert {sample.others_cores for sample in report.samples} == {during}
    assert ("NOT QUIET" in report.markdown()) is not quiet


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"warmups": -1}, {"busy_share": 0.0}])
def test_options_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Options(**wrong)  # type: ignore[arg-type]
