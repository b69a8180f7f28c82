"""The group: instant help, exit codes in one place."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import mainspring
from mainspring.cli import COMMANDS, main
from mainspring.cli._failures import ending
from mainspring.cli._lazy import LazyGroup
from mainspring.errors import BehaviorError, CheckpointError, InputError, MainspringError, ModelError

SOURCE = Path(mainspring.__file__).parents[1]


@contextmanager
def python(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_help_starts_without_heavy_imports() -> None:
    with python("-X", "importtime", "-m", "mainspring", "--help") as process:
        stdout, stderr = process.communicate(timeout=200)
    assert process.returncode == 0
    assert stdout.startswith(b"Usage: mainspring ")
    imported = {line.rpartition("|")[2].strip() for line in stderr.decode().splitlines()}
    assert "mainspring.cli._options" in imported  # commands are there
    assert not imported & {"torch", "numpy", "rich", "tokenizers", "msgspec", "minijinja"}


def test_help_lists_commands_and_exit_codes() -> None:
    shown = CliRunner().invoke(main, ["--help"]).stdout
    assert all(name in shown for name in COMMANDS)
    for code in ("0    everything", "1    a span", "2    usage", "3    the model", "130  interrupted"):
        assert code in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    result = CliRunner().invoke(main, [name, "-h"])
    assert result.exit_code == 0
    assert f"mainspring {name}" in result.stdout


def test_version() -> None:
    assert mainspring.__version__ in CliRunner().invoke(main, ["--version"]).stdout


def test_unknown_command() -> None:
    result = CliRunner().invoke(main, ["nonsense"])
    assert result.exit_code == 2
    assert "nonsense" in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ModelError("m"), 3),
        (CheckpointError("m"), 3),
        (InputError("m"), 2),
        (BehaviorError("m", param="b[0]"), 2),
        (MainspringError("m"), 1),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 141),
    ],
)
def test_exit_codes(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.cli._failures._drop_stdout", lambda: None)
    with pytest.raises(click.exceptions.Exit) as caught, ending():
        raise error
    assert caught.value.exit_code == code


def test_an_error_is_one_clean_line() -> None:
    @click.command()
    def fail() -> None:
        raise InputError("bad \x1b[31m\nthing", param="a[0]")

    group = LazyGroup(commands_at={}, commands={"fail": fail})
    result = CliRunner().invoke(group, ["fail"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: a[0]: bad \\x1b[31m\\nthing\n"


def test_unexpected_errors_keep_their_traceback() -> None:
    with pytest.raises(ZeroDivisionError), ending():
        _ = 1 / 0


def test_a_closed_pipe_is_quiet(model: str, chat: Path) -> None:
    lines = chat.read_text() + "\n"
    with python("-m", "mainspring", "score", "-", "--json", "-b", "the answer", "--model", model) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, stderr = process.communicate((lines * 3).encode(), timeout=200)
    assert (process.returncode, stderr) == (141, b"")
