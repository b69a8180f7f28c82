"""The README's every command runs, and its Python too, in a folder with the files it names."""

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainspring.cli import main
from support.folders import write_tiny_model

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
CHAT = {"messages": [{"role": "user", "content": "Where are the docs?"}, {"role": "assistant", "content": "No idea."}]}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.M | re.S)


COMMANDS = [shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines() if line.strip()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The reader's working folder, with a small model where README fetches one."""
    (tmp_path / "chat.json").write_text(json.dumps(CHAT))
    (tmp_path / "spans.jsonl").write_text(f"{json.dumps(CHAT)}\n" * 3)
    (tmp_path / "spans").mkdir()
    (tmp_path / "spans" / "one.json").write_text(json.dumps(CHAT))
    (tmp_path / "behaviors.txt").write_text("the assistant made up a URL\nthe assistant refuses\n")
    write_tiny_model(tmp_path / "a-model")
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "snapshot_download", lambda *_, **__: str(tmp_path / "a-model"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_two_commands_come_first() -> None:
    assert COMMANDS[:2] == [["make", "demo"], ["make", "test"]]


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[0] == "make"], ids=" ".join)
def test_make_commands_have_targets(command: list[str]) -> None:
    done = subprocess.run(["make", "-n", *command[1:]], cwd=ROOT, capture_output=True, text=True)  # noqa: S603, S607
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[0] != "make"], ids=" ".join)
def test_commands_run(command: list[str], folder: Path) -> None:
    assert command[0] == "mainspring", "a command that this test does not know how to run"
    result = CliRunner().invoke(main, command[1:])
    assert result.exit_code == 0, result.output
    assert result.stdout.strip()


@pytest.mark.parametrize("code", blocks("python"))
def test_python_runs(code: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_extras_and_links_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"mainspring\[(\w+)\]", README)
    assert named
    assert set(named) <= set(extras)
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
