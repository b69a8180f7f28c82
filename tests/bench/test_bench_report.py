import json
from pathlib import Path

import pytest

from bench.fakes import FakeClock, FakeLoad, fake_host
from mainspring.bench import Arm, Options, Report, measure
from mainspring.bench.report import figure, table


def planted(folder: Path, *, busy: float = 0.0, rounds: int = 2) -> Report:
    clock = FakeClock()

    def run(seconds: float) -> float:
        clock.advance(seconds)
        return 1000.0

    arms = [Arm("plain", lambda: run(2.0)), Arm("fast | wide", lambda: run(1.0))]
    host = fake_host(folder, clock, FakeLoad((busy,), busy))
    return measure(arms, Options(rounds=rounds), title="Planted, twice", unit="tokens", device="None", host=host)


def test_json_round_trip(tmp_path: Path) -> None:
    report = planted(tmp_path)
    assert Report.from_json(report.to_json()) == report


def test_json_carries_every_raw_sample(tmp_path: Path) -> None:
    raw = json.loads(planted(tmp_path).to_json())
    assert raw["schema"] == 1
    assert [sample["arm"] for sample in raw["samples"]] == ["plain", "fast | wide", "fast | wide", "plain"] * 2
    first = {
        "arm": "plain",
        "round": 0,
        "position": 0,
        "units": 1000.0,
        "elapsed_ns": 2_000_000_000,
        "others_cores": 0.0,
    }
    assert raw["samples"][0] == first


@pytest.mark.parametrize("schema", [0, 2, None])
def test_another_schema_is_refused(tmp_path: Path, schema: int | None) -> None:
    raw = json.loads(planted(tmp_path).to_json()) | {"schema": schema}
    with pytest.raises(ValueError, match="schema"):
        Report.from_json(json.dumps(raw))


@pytest.mark.parametrize("text", ["[]", "{", '{"schema": 1}'])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Report.from_json(text)


def test_markdown_has_rates_and_ratios(tmp_path: Path) -> None:
    text = planted(tmp_path).markdown()
    assert text.startswith("### Planted, twice\n\n| arm | tokens/s | 95 % |")
    assert "| plain | **500.0** | 500.0 to 500.0 | 500.0 | 500.0 | 500.0 | 4 | 8.000 | 0.00 |" in text
    assert r"| fast \| wide / plain | **2.000** | 2.000 to 2.000 |" in text
    assert "NOT QUIET" not in text


def test_markdown_without_intervals(tmp_path: Path) -> None:
    assert "| **500.0** | – | 500.0 |" in planted(tmp_path, rounds=1).markdown()


def test_noise_is_above_the_table(tmp_path: Path) -> None:
    report = planted(tmp_path, busy=2.5)
    assert not report.quiet
    assert report.markdown().splitlines()[2].startswith("**NOT QUIET: other processes used 2.50 cores")


def test_files(tmp_path: Path) -> None:
    report = planted(tmp_path)
    markdown, as_json = report.write(tmp_path / "new" / "folder")
    assert (markdown.name, as_json.name) == ("planted-twice.md", "planted-twice.json")
    assert markdown.read_text(encoding="utf-8") == report.markdown()
    assert Report.from_json(as_json.read_bytes()) == report


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0.0000"), (0.12345, "0.1235"), (1.0, "1.000"), (80.853, "80.85"), (1234.5, "1,234"), (2e12, "2.000e+12")],
)
def test_figures(value: float, shown: str) -> None:
    assert figure(value) == shown


def test_tables() -> None:
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | ---: |\n| 1 | 2 |"
