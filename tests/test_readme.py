"""The README's every command runs, and its Python too, in a folder with the files it names."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainspring.cli import main
from mainspring.simulate import compare
from support.folders import write_tiny_model

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
CHAT = {"messages": [{"role": "user", "content": "Where are the docs?"}, {"role": "assistant", "content": "No idea."}]}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.M | re.S)


FLEET = [block for block in blocks("sh") if "mainspring router --listen" in block]
SERVE = [block for block in blocks("sh") if "mainspring serve &" in block]
WRITE = [block for block in blocks("sh") if "mainspring serve writer &" in block]
LINES = [
    line
    for block in blocks("sh")
    if block not in [*FLEET, *SERVE, *WRITE]
    for line in block.splitlines()
    if line.strip()
]
COMMANDS = [shlex.split(line, comments=True) for line in LINES]


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
def test_commands_run(command: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All policies in all scenarios are compared with one seed and for a quarter of the time, else it takes minutes."""
    assert command[0] == "mainspring", "a command that this test does not know how to run"
    monkeypatch.setattr(compare, "QUICK_SEEDS", 1)
    monkeypatch.setattr(compare, "QUICK_SCALE", 0.25)
    result = CliRunner().invoke(main, command[1:])
    assert result.exit_code == 0, result.output
    assert result.stdout.strip()


@pytest.mark.parametrize("code", blocks("python"))
def test_python_runs(code: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_fleet_starts_as_typed(tmp_path: Path) -> None:
    """Real processes; the node is in the router's status within two minutes."""
    (block,) = FLEET
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    lines = [line.replace(":7300", f":{port}") for line in block.splitlines()]
    assert lines[-1].startswith("mainspring router status")
    started: list[subprocess.Popen[bytes]] = []
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    try:
        for line in lines[:-1]:
            command = [sys.executable, "-m", *shlex.split(line.removesuffix("&"))]
            if line.endswith("&"):
                with (tmp_path / "log").open("ab") as log:
                    started.append(subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log))  # noqa: S603
            else:
                subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)  # noqa: S603
        ask = [sys.executable, "-m", *shlex.split(lines[-1])]
        until, shown = time.monotonic() + 120, ""
        while not ("ant" in shown and "ready" in shown):
            assert time.monotonic() < until, shown + (tmp_path / "log").read_text()
            time.sleep(1)
            shown = subprocess.run(ask, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout  # noqa: S603
    finally:
        for process in reversed(started):
            process.terminate()
        codes = [process.wait(60) for process in reversed(started)]
    assert codes == [0, 0]


def replies(block: str, folder: Path) -> list[str]:
    """What each of the block's curls got from the server that its first line starts, on a free port."""
    first, rest = block.split("\n", 1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", *shlex.split(first.removesuffix("&")), "--port", str(port), "--threads", "1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)  # noqa: S603
    found = []
    try:
        until = time.monotonic() + 120
        while b"serves at" not in (folder / "log").read_bytes():
            assert time.monotonic() < until, (folder / "log").read_text()
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
        for text in rest.replace(":8000", f":{port}").split("\ncurl"):
            line = text if text.startswith("curl") else f"curl{text}"
            done = subprocess.run(shlex.split(line), capture_output=True, check=True, timeout=60)  # noqa: S603
            found.append(done.stdout.decode())
    finally:
        process.terminate()
        code = process.wait(60)
    assert code == 0
    return found


def test_serving_works_as_typed(tmp_path: Path) -> None:
    """Every request gets JSON; the first may come before the node has joined and is asked again, as its answer says."""
    (block,) = SERVE
    found = [json.loads(text) for text in replies(block, tmp_path)]
    assert [row["id"] for row in found[0]["results"]] == ["made-up"]
    assert set(found[1]["answers"]["topic"]["probabilities"]) == {"delivery", "price"}
    assert found[2]["status"] == "ready"


def test_generating_works_as_typed(tmp_path: Path) -> None:
    (block,) = WRITE
    whole, events, message = replies(block, tmp_path)
    chat = json.loads(whole)
    assert chat["object"] == "chat.completion"
    assert 1 <= chat["usage"]["completion_tokens"] <= 100
    assert events.rstrip().endswith("data: [DONE]")
    chunks = [json.loads(line.removeprefix("data: ")) for line in events.splitlines() if line.startswith("data: {")]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[-1]["usage"]["completion_tokens"] <= 20
    assert json.loads(message)["usage"]["output_tokens"] <= 50


def test_extras_and_links_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"mainspring\[(\w+)\]", README)
    assert named
    assert set(named) <= set(extras)
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
