"""`mainspring demo`: the shipped data, the made model, the same path as `score`."""

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from mainspring.cli._demo_model import byte_tokenizer
from mainspring.text.bundle import Bundle
from mainspring.text.formats import read_span

Run = Callable[..., Result]
DATA = files("mainspring") / "data" / "demo"


def test_demo_is_what_score_says_with_the_kept_model(run: Run, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    demo = run("demo", "--keep", kept, "--json")
    assert demo.exit_code == 0
    assert "RANDOM" in demo.stderr
    assert "mean nothing" in demo.stderr
    assert f"--model {kept}" in demo.stderr
    conversation, behaviors = str(DATA / "conversation.json"), str(DATA / "behaviors.json")
    again = run("score", conversation, "--behaviors", behaviors, "--model", kept, "--json")
    assert again.exit_code == 0
    first, second = json.loads(demo.stdout), json.loads(again.stdout)
    assert [r["id"] for r in first["results"]] == [r["id"] for r in second["results"]]
    for name in ("p_present", "p_absent", "p_not_observable"):
        np.testing.assert_allclose([r[name] for r in first["results"]], [r[name] for r in second["results"]], atol=1e-6)
    refused = run("demo", "--keep", kept)
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_table_and_time(run: Run) -> None:
    result = run("demo")
    assert result.exit_code == 0
    assert "made-up-url" in result.stdout
    assert "1 of 1 spans scored against 8 behaviors" in result.stderr


def test_shipped_conversation_reads_whole() -> None:
    read = read_span(json.loads((DATA / "conversation.json").read_text()))
    assert [message.role for message in read.span.input] == ["system", "user", "assistant", "tool", "user"]
    assert "https://" in read.span.output[0].text
    assert [tool.name for tool in read.span.tools] == ["get_order"]


def test_the_model_shows_tools_and_calls_by_its_own_template(run: Run, tmp_path: Path) -> None:
    run("demo", "--keep", tmp_path / "m", "--json")
    bundle = Bundle.load(tmp_path / "m")
    view = bundle.view(read_span(json.loads((DATA / "conversation.json").read_text())).span)
    assert {note.kind for note in view.notes} <= {"not_rendered"}  # ids of calls
    assert view.text.count("<tool_call>\n") == view.text.count("<tool_response>\n") == 1
    assert len(bundle.answers["choice"].words) >= 26


@pytest.mark.parametrize("text", ["plain", "é 漢字 😀", "\0\x1b"])
def test_a_byte_is_a_token(text: str) -> None:
    assert len(byte_tokenizer().encode(text).ids) == len(text.encode())
