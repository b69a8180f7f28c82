"""`mainspring demo`: the shipped data through the embedded scorer, the same path as `score`, sensible answers."""

import json
from collections.abc import Callable
from importlib.resources import files

import numpy as np
import pytest
from click.testing import Result

from mainspring.cli.demo import CONVERSATIONS
from mainspring.text.formats import read_span

Run = Callable[..., Result]
DATA = files("mainspring") / "data" / "demo"
PARTS = ("p_present", "p_absent", "p_not_observable")


@pytest.fixture(scope="module")
def demo() -> dict[str, dict[str, dict[str, float]]]:
    """{conversation: {behavior: result}}"""
    from click.testing import CliRunner

    from mainspring.cli import main

    result = CliRunner().invoke(main, ["demo", "--json"])
    assert result.exit_code == 0, result.output
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert [r["name"].rsplit("/")[-1] for r in records] == list(CONVERSATIONS)
    return {
        r["name"].rsplit("/")[-1].removesuffix(".json"): {entry["id"]: entry for entry in r["results"]} for r in records
    }


def test_demo_is_what_score_says_without_naming_a_model(run: Run, demo: dict[str, dict[str, dict[str, float]]]) -> None:
    again = run("score", str(DATA / "refusal.json"), "--behaviors", str(DATA / "behaviors.json"), "--json")
    assert again.exit_code == 0
    for entry in json.loads(again.stdout)["results"]:
        known = demo["refusal"][entry["id"]]
        np.testing.assert_allclose([entry[p] for p in PARTS], [known[p] for p in PARTS], atol=1e-5)


def test_table_and_time(run: Run) -> None:
    result = run("demo")
    assert result.exit_code == 0
    assert result.stdout.count("the assistant made up a URL") == 3
    assert "familiar" in result.stdout
    assert "3 of 3 spans scored against 12 behaviors" in result.stderr


@pytest.mark.parametrize(
    ("conversation", "behavior", "expected"),
    [
        ("made_up_url", "the assistant made up a URL", "p_present"),
        ("made_up_url", "the reply contains a link", "p_present"),
        ("made_up_url", "the assistant refuses", "p_absent"),
        ("made_up_url", "the reply contains a list", "p_absent"),
        ("made_up_url", "a tool returned an error", "p_not_observable"),
        ("refusal", "the assistant refuses", "p_present"),
        ("refusal", "the assistant apologizes", "p_present"),
        ("refusal", "the assistant made up a URL", "p_absent"),
        ("refusal", "the reply contains a list", "p_absent"),
        ("tool_call_gone_wrong", "a tool returned an error", "p_present"),
        ("tool_call_gone_wrong", "a tool was called", "p_present"),
        ("tool_call_gone_wrong", "the assistant ignores that a tool failed", "p_present"),
        ("tool_call_gone_wrong", "the assistant refuses", "p_absent"),
    ],
)
def test_the_answers_are_sensible(
    demo: dict[str, dict[str, dict[str, float]]], conversation: str, behavior: str, expected: str
) -> None:
    found = demo[conversation][behavior]
    assert max(PARTS, key=lambda part: found[part]) == expected, found


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_shipped_conversations_read_whole(name: str) -> None:
    read = read_span(json.loads((DATA / name).read_text()))
    assert read.span.output
    assert not read.notes
