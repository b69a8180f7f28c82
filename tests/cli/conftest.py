"""One tiny model for all tests of the command line, and a way to call it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mainspring.cli import main
from support.folders import write_tiny_model

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_model(tmp_path_factory.mktemp("tiny") / "model"))


@pytest.fixture
def run() -> Run:
    def call(*arguments: str | Path, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin, env=env)

    return call


@pytest.fixture
def score(run: Run, model: str) -> Run:
    """With the tiny model and, where the test names none, one behavior."""

    def call(*arguments: str | Path, **options: Any) -> Result:
        asked = {"-b", "--behaviors"} & {str(argument) for argument in arguments}
        return run("score", *arguments, "--model", model, *(() if asked else ("-b", "the answer is short")), **options)

    return call


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"input": "Hello there", "output": "See https://example.org/x."}))
    return path
