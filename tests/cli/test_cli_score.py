"""`mainspring score` end to end with a tiny model: inputs, outputs, exit codes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mainspring.cli import main
from mainspring.scorer import Scorer
from mainspring.text.formats import FORMATS
from support.folders import write_tiny_model
from support.span_examples import ANSWER, EXAMPLES

Run = Callable[..., Result]
SPAN = {"input": "Hello there", "output": "Hi."}
TERMINAL = {"FORCE_COLOR": "1", "COLUMNS": "90", "TERM": "xterm-256color"}


def records(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_json_record(score: Run, chat: Path, model: str) -> None:
    result = score(chat, "-b", "the first one", "-b", "the second one", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    (record,) = records(result)
    expected = Scorer.from_pretrained(model).score(json.loads(chat.read_text()), ["the first one", "the second one"])
    assert list(record) == ["name", "index", "format", "results", "usage", "notes"]
    assert (record["name"], record["index"], record["format"]) == (str(chat), 0, "span-01")
    assert record["usage"] == {"input_tokens": expected.input_tokens}
    for found, wanted in zip(record["results"], expected, strict=True):
        assert list(found) == ["id", "p_present", "p_absent", "p_not_observable"]
        assert found["id"] == wanted.id
        assert found["p_present"] == pytest.approx(wanted.p_present, abs=1e-6)
        assert sum(list(found.values())[1:]) == pytest.approx(1, abs=1e-12)


def test_plain_table(score: Run, chat: Path) -> None:
    result = score(chat, "-b", "a long behavior " * 20)
    head, columns, row, empty = result.stdout.split("\n")[:4]
    assert head.startswith(f"{chat}  span-01  ")
    assert head.endswith(" tokens  0 notes")
    assert columns.split() == ["present", "absent", "n/o", "behavior"]
    *numbers, text = row.split(maxsplit=3)
    assert sum(map(float, numbers)) == pytest.approx(1, abs=2e-4)
    assert (text, empty) == ("a long behavior " * 20, "")
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


def test_terminal_table(score: Run, chat: Path) -> None:
    result = score(chat, chat, "-b", "[red]the[/red] \x1b[31mfirst\x1b[0m", "-b", "x" * 300, env=TERMINAL)
    assert result.exit_code == 0
    assert r"[red]the[/red] \x1b[31mfirst\x1b[0m" in result.stdout
    assert "\x1b[31m" not in result.stdout
    assert "█" in result.stdout or "▏" in result.stdout
    assert "x" * 161 not in result.stdout.replace("\n", "").replace(" ", "")
    assert "2 of 2 spans scored against 2 behaviors" in result.stderr


def test_dumb_terminals_and_narrow_encodings(chat: Path, model: str) -> None:
    arguments = ["score", str(chat), "-b", "naïve 漢字 \u202e", "--model", model]
    result = CliRunner(charset="ascii").invoke(main, arguments, env={**TERMINAL, "NO_COLOR": "1"})
    assert result.exit_code == 0
    assert result.stdout_bytes.isascii()
    assert r"na\xefve \u6f22\u5b57 \u202e" in result.stdout
    assert "#" in result.stdout
    assert "\x1b[3" not in result.stdout


@pytest.mark.parametrize("name", FORMATS)
def test_every_format(score: Run, tmp_path: Path, name: str) -> None:
    example = EXAMPLES[name]
    path = tmp_path / ("span.txt" if name == "text" else "span.json")
    path.write_text(example if isinstance(example, str) else json.dumps(example))
    recognised, insisted = score(path, "--json"), score(path, "--json", "--format", name)
    assert recognised.exit_code == insisted.exit_code == 0
    assert records(recognised) == records(insisted)
    assert records(recognised)[0]["format"] == name


def test_every_format_gives_the_same_words_to_the_model(run: Run, tmp_path: Path, model: str) -> None:
    for name, example in EXAMPLES.items():
        path = tmp_path / f"{name}.txt"
        path.write_text(example if isinstance(example, str) else json.dumps(example))
        assert ANSWER in run("explain", path, "--format", name, "--model", model).stdout


def test_stdin_file_folder_and_jsonl_give_the_same(score: Run, tmp_path: Path) -> None:
    line = json.dumps(SPAN)
    (tmp_path / "one.json").write_text(json.dumps(SPAN, indent=2))
    (tmp_path / "lines.jsonl").write_text(f"{line}\n\n{line}\n")
    (tmp_path / "list.json").write_text(f"[{line},\n{line}]")
    calls = {
        "one": (score(tmp_path / "one.json", "--json"), 1),
        "lines": (score(tmp_path / "lines.jsonl", "--json"), 2),
        "list": (score(tmp_path / "list.json", "--json"), 2),
        "folder": (score(tmp_path, "--json"), 5),
        "several": (score(tmp_path / "one.json", tmp_path / "list.json", "--json"), 3),
        "stdin": (score("-", "--json", stdin=line.encode()), 1),
        "stdin lines": (score("-", "--json", stdin=f"{line}\n{line}\n{line}".encode()), 3),
    }
    first = records(calls["one"][0])[0]["results"]
    for name, (result, count) in calls.items():
        assert result.exit_code == 0, name
        found = records(result)
        assert [record["results"] == first for record in found] == [True] * count, name
    assert [r["index"] for r in records(calls["lines"][0])] == [0, 1]
    assert records(calls["stdin"][0])[0]["name"] == "<stdin>"


def test_one_bad_line_does_not_stop_the_rest(score: Run, tmp_path: Path) -> None:
    good, wrong = json.dumps(SPAN), json.dumps({"span": {"input": "x", "output": {"role": "user", "content": "y"}}})
    (path := tmp_path / "spans.jsonl").write_text(f'{good}\n{{"input": \n{wrong}\n[]\n{{"a": 1}}\n{good}\n')
    result = score(path, "--json")
    assert result.exit_code == 1
    found = records(result)
    assert [record["index"] for record in found] == [0, 1, 2, 3, 4, 5]
    assert ["error" in record for record in found] == [False, True, True, True, True, False]
    malformed, role, empty, unknown = (record["error"] for record in found[1:5])
    assert all(list(error) == ["code", "message", "param"] for error in (malformed, role, empty, unknown))
    assert malformed["code"] == "malformed"
    assert malformed["message"].startswith("line 2, column ")
    assert (role["code"], role["param"]) == ("bad_span", "span.output.role")
    assert (empty["code"], unknown["code"]) == ("bad_span", "unknown_format")
    table = score(path)
    assert table.exit_code == 1
    assert table.stdout.count("present  absent") == 2
    assert f"error: {path}[1]: line 2, column" in table.stderr
    assert f"error: {path}[2]: span.output.role: span output must be an assistant message" in table.stderr
    assert "2 of 6 spans scored against 1 behavior, 4 refused or failed" in table.stderr


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"input": "x", "output": {"role": "user", "content": "y"}}, "bad_span"),
        ({"messages": [{"role": "wizard", "content": "y"}]}, "bad_span"),
        ({"input": [], "output": None}, "bad_span"),
        ({"nothing": "known"}, "unknown_format"),
        ("[" * 300 + "]" * 300, "too_large"),
        ('{"input": "a",\n  output: 1}', "malformed"),
    ],
)
def test_refusals(score: Run, tmp_path: Path, data: object, code: str) -> None:
    (path := tmp_path / "span.json").write_text(data if isinstance(data, str) else json.dumps(data))
    result = score(path, "--json")
    assert result.exit_code == 1
    (record,) = records(result)
    assert record["error"]["code"] == code


def test_an_output_without_text_is_scored(score: Run, tmp_path: Path) -> None:
    (path := tmp_path / "span.json").write_text(json.dumps({"input": "x", "output": ""}))
    assert score(path).exit_code == 0


def test_cut_refuse_and_choice(score: Run, tmp_path: Path) -> None:
    (path := tmp_path / "span.json").write_text(json.dumps({"input": "word " * 2000, "output": ["one", "two"]}))
    refused = score(path, "--limit-tokens", "300", "--json")
    assert refused.exit_code == 1
    assert records(refused)[0]["error"]["code"] == "too_large"
    cut = score(path, "--limit-tokens", "300", "--cut", "--json")
    assert cut.exit_code == 0
    assert "cut" in {note["kind"] for note in records(cut)[0]["notes"]}
    first, second = (records(score(path, "--choice", str(k), "--json"))[0] for k in (0, 1))
    assert first["results"] != second["results"]
    assert records(score(path, "--choice", "2", "--json"))[0]["error"]["param"] == "choice"


WEIRD = "nul \0 esc \x1b[2J bell \x07 rtl \u202eabc עברית 4-byte \U0001f9ff tag \U000e0041 [bold]x[/bold]"


@pytest.mark.parametrize("env", [{}, TERMINAL])
def test_weird_text_everywhere(score: Run, tmp_path: Path, env: dict[str, str]) -> None:
    path = tmp_path / "a\x1b[31m\u202e\udcff[red].json"
    path.write_bytes(b'{"input": "%s \\ud800 x", "output": "ok \\udfff"}' % json.dumps(WEIRD)[1:-1].encode())
    (asked := tmp_path / "b.json").write_text(
        json.dumps([{"id": WEIRD, "definition": WEIRD}, {"id": "\ud800", "definition": "the \ud800 one"}])
    )
    table = score(path, "--behaviors", asked, env=env)
    assert table.exit_code == 0
    for stream in (table.stdout, table.stderr):
        assert not any(c in stream for c in ("\x1b[31m", "\x1b[2J", "\0", "\x07", "\u202e", "\U000e0041"))
        stream.encode()
    (record,) = records(result := score(path, "--behaviors", asked, "--json", env=env))
    assert result.stdout.isascii()
    assert [r["id"] for r in record["results"]] == [WEIRD, "\ud800"]
    assert record["name"] == str(path)
    assert {note["kind"] for note in record["notes"]} == {"replaced"}


def test_errors_of_weird_files_are_escaped(score: Run, tmp_path: Path) -> None:
    (path := tmp_path / "a\x1b[31m\n.json").write_text("{")
    result = score(path)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert r"a\x1b[31m\n.json: line 1, column" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.json", "-b", "abc"], "missing.json: No such file"),
        (["-", "-b", "ab"], "-b number 1.definition: 2 characters, at least 3"),
        (["-", "-b", "abc", "-b", "abc"], "-b number 2: the id is that of -b number 1"),
        (["-"], "at least one behavior is needed"),
        (["-", "-b", "abc", "--format", "nonsense"], "no span format 'nonsense'; known are langfuse"),
        (["-", "-b", "abc", "--device", "tpu"], "'tpu'"),
        (["-", "-b", "abc", "--limit-tokens", "0"], "--limit-tokens"),
        (["-b", "abc"], "FILE"),
    ],
)
def test_usage_errors_come_before_the_model(run: Run, arguments: list[str], message: str) -> None:
    result = run("score", *arguments, "--model", "no/such/model/anywhere")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_the_model_is_the_embedded_one_or_from_the_environment(run: Run, chat: Path, model: str) -> None:
    embedded = run("score", chat, "-b", "abc", "--json", env={"MAINSPRING_MODEL": ""})
    assert embedded.exit_code == 0
    assert "familiarity" in json.loads(embedded.stdout)["results"][0]
    other = run("score", chat, "-b", "abc", "--json", env={"MAINSPRING_MODEL": model})
    assert other.exit_code == 0
    assert "familiarity" not in json.loads(other.stdout)["results"][0]
    assert run("score", chat, "-b", "abc", "--model", "", env={"MAINSPRING_MODEL": model}).exit_code == 3


def test_fifty_megabytes(score: Run, tmp_path: Path) -> None:
    """A document is refused by its size; lines of any total stream."""
    long = json.dumps({"input": "x" * (50 * 2**20), "output": "y"})
    (document := tmp_path / "big.json").write_text(long)
    (lines := tmp_path / "big.jsonl").write_text(f"{json.dumps(SPAN)}\n{long}\n{json.dumps(SPAN)}\n")
    result = score(document, "--json")
    assert result.exit_code == 1
    assert records(result)[0]["error"]["code"] == "too_large"
    assert "20971520" in records(result)[0]["error"]["message"]
    found = records(score(lines, "--json"))
    assert ["results" in record for record in found] == [True, False, True]


def test_fifty_megabytes_of_lines_stream(score: Run, tmp_path: Path) -> None:
    blank = b" " * 2**20 + b"\n"
    path = tmp_path / "blank.jsonl"
    with path.open("wb") as file:
        for _ in range(50):
            file.write(blank)
        file.write(json.dumps(SPAN).encode())
    result = score(path, "--json")
    assert result.exit_code == 0
    assert len(records(result)) == 1


def test_ten_thousand_behaviors(run: Run, tmp_path: Path, chat: Path) -> None:
    short = {"questions": {"behavior": "{{ definition }}"}}
    folder = write_tiny_model(tmp_path / "m", scoring=short, num_hidden_layers=2, full_attention_interval=2)
    (asked := tmp_path / "b.txt").write_text("\n".join(f"no {number}" for number in range(10_000)))
    result = run("score", chat, "--behaviors", asked, "--json", "--model", folder)
    assert result.exit_code == 0
    results = records(result)[0]["results"]
    assert [r["id"] for r in results] == [f"no {number}" for number in range(10_000)]
    few = run("score", chat, "-b", "no 7", "-b", "no 9999", "--json", "--model", folder)
    for found, wanted in zip(records(few)[0]["results"], (results[7], results[9999]), strict=True):
        assert found["p_present"] == pytest.approx(wanted["p_present"], abs=1e-5)


def test_threads(score: Run, chat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number asked for, whatever a measurement would choose."""
    import torch

    monkeypatch.setattr("mainspring.backend.torch_cpu.choose_threads", lambda: 1)
    before = torch.get_num_threads()
    try:
        assert score(chat, "--threads", "3").exit_code == 0
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
