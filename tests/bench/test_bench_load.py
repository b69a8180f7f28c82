import os
import sys
from pathlib import Path

import pytest

from bench.fakes import FakeClock, FakeLoad
from mainspring.bench.load import LoadAverage, ProcStat, system_source, tree_ticks, wait_until_quiet

TICK = os.sysconf("SC_CLK_TCK")


def write_process(root: Path, pid: int, parent: int, *, own: int, reaped: int = 0, name: str = "x") -> None:
    (root / str(pid)).mkdir(exist_ok=True)
    between = "0 " * 9  # fields 5 to 13
    (root / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} {between}{own} 0 {reaped} 0 20 0")


def write_total(root: Path, *, user: int, idle: int, steal: int = 0) -> None:
    (root / "stat").write_text(f"cpu  {user} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 1 1 1 1\n")


def test_the_gate_opens_at_once_on_a_quiet_machine() -> None:
    clock = FakeClock()
    gate = wait_until_quiet(FakeLoad((0.1,)), limit_share=0.1, wait_limit_s=60, sleep=clock.advance, clock_ns=clock)
    assert gate.quiet
    assert gate.waited_s == pytest.approx(1.0)
    assert gate.limit_cores == pytest.approx(0.4)  # of four cores


def test_the_gate_waits_for_others_to_finish() -> None:
    clock, said = FakeClock(), list[str]()
    load = FakeLoad((3.0, 2.0, 0.5, 0.2))
    gate = wait_until_quiet(
        load, limit_share=0.1, wait_limit_s=60, sleep=clock.advance, clock_ns=clock, say=said.append
    )
    assert gate.quiet
    assert gate.waited_s == pytest.approx(4.0)
    assert gate.others_cores == 0.2
    assert said == ["waiting for quiet: others use 3.00 cores, limit 0.40"]


def test_the_gate_gives_up_and_says_so() -> None:
    clock = FakeClock()
    gate = wait_until_quiet(FakeLoad((3.0,)), limit_share=0.1, wait_limit_s=10, sleep=clock.advance, clock_ns=clock)
    assert not gate.quiet
    assert gate.waited_s == pytest.approx(10.0)
    assert gate.others_cores == 3.0


def test_without_waiting_one_look_is_taken() -> None:
    clock = FakeClock()
    gate = wait_until_quiet(FakeLoad((3.0, 0.0)), limit_share=0.1, wait_limit_s=0, sleep=clock.advance, clock_ns=clock)
    assert not gate.quiet


def test_others_are_everybody_less_our_tree(tmp_path: Path) -> None:
    seconds = iter([0.0, 10.0])
    source = ProcStat(tmp_path, clock=lambda: next(seconds))
    write_total(tmp_path, user=0, idle=0)
    write_process(tmp_path, os.getpid(), 1, own=0)
    mark = source.mark()
    write_total(tmp_path, user=22 * TICK, idle=7 * TICK, steal=3 * TICK)
    write_process(tmp_path, os.getpid(), 1, own=10 * TICK)
    assert source.others_since(mark) == pytest.approx(1.5)  # (25 - 10) CPU seconds in 10 s


def test_the_tree_counts_living_descendants_and_reaped_children(tmp_path: Path) -> None:
    write_process(tmp_path, 10, 1, own=1, reaped=2)
    write_process(tmp_path, 11, 10, own=4, name="a) S 1 (b")
    write_process(tmp_path, 12, 11, own=8)
    write_process(tmp_path, 13, 1, own=100)
    (tmp_path / "14").mkdir()  # ended while we looked
    (tmp_path / "self").mkdir()
    assert tree_ticks(tmp_path, 10) == 15


def test_the_fallback_records_nothing_beside_samples() -> None:
    source = LoadAverage()
    assert source.others_since(source.mark()) is None
    assert source.others_now(source.mark()) >= 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_real_source_reads_this_machine() -> None:
    source = system_source()
    mark = source.mark()
    assert mark.all_s > mark.own_s > 0
    assert source.cores >= 1
    assert source.others_now(mark) >= 0
