from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bench.fakes import FakeClock, FakeLoad, fake_host
from mainspring.bench import Arm, Options, Report, measure
from mainspring.bench.cli import Publish, shared_options
from mainspring.bench.lock import exclusive


@pytest.fixture
def load() -> FakeLoad:
    return FakeLoad()


@pytest.fixture
def script(tmp_path: Path, load: FakeLoad) -> click.Command:
    @click.command()
    @click.option("--extra", type=int, default=1)
    @shared_options
    def main(options: Options, publish: Publish, extra: int) -> None:
        clock = FakeClock()

        def run() -> float:
            clock.advance(1.0)
            return float(extra)

        publish(measure([Arm("A", run)], options, title="Script", unit="u", host=fake_host(tmp_path, clock, load)))

    return main


def test_options_reach_the_measurement(script: click.Command) -> None:
    arguments = ["--rounds", "3", "--warmups", "1", "--seed", "9", "--no-wait", "--json", "--extra", "5"]
    result = CliRunner().invoke(script, arguments)
    assert result.exit_code == 0, result.output
    report = Report.from_json(result.stdout)
    assert report.options == Options(rounds=3, warmups=1, seed=9, wait=False)
    assert len(report.samples) == 6
    assert report.arms[0].rate == pytest.approx(5.0)


def test_the_table_is_printed_and_files_are_written(script: click.Command, tmp_path: Path) -> None:
    result = CliRunner().invoke(script, ["--rounds", "2", "--out", str(tmp_path / "out")])
    assert result.stdout.startswith("### Script\n")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["script.json", "script.md"]


def test_noise_is_loud_even_beside_json(script: click.Command, load: FakeLoad) -> None:
    load.looks = [3.0]
    result = CliRunner().invoke(script, ["--rounds", "1", "--no-wait", "--json"])
    assert result.exit_code == 0
    assert "NOT QUIET" in result.stderr
    assert not Report.from_json(result.stdout).quiet


def test_a_held_lock_is_one_line(script: click.Command, tmp_path: Path) -> None:
    with exclusive(tmp_path / "lock", wait_limit_s=0):
        result = CliRunner().invoke(script, ["--no-wait"])
    assert result.exit_code == 1
    assert "Error: another benchmark holds the lock (pid" in result.stderr
