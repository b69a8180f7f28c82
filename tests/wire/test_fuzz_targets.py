"""The targets of `fuzz/` under Hypothesis: the same that atheris runs for longer (`make fuzz`)."""

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FUZZ = Path(__file__).resolve().parents[2] / "fuzz"
NAMES = ("frames", "messages", "mux", "router", "node", "shell")


@pytest.fixture(scope="module")
def targets() -> Iterator[dict[str, Callable[[bytes], None]]]:
    sys.path.insert(0, str(FUZZ))
    try:
        yield importlib.import_module("targets").TARGETS
    finally:
        sys.path.remove(str(FUZZ))


def test_every_target_is_run(targets: dict[str, Callable[[bytes], None]]) -> None:
    assert tuple(targets) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_target_finds_nothing(targets: dict[str, Callable[[bytes], None]], name: str) -> None:
    scale = 30 if name == "shell" else 150

    @settings(max_examples=scale, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.binary(max_size=1500))
    def run(data: bytes) -> None:
        targets[name](data)

    run()


def test_an_engine_s_complaint_is_a_failure(tmp_path: Path) -> None:
    """A target that raises ends the run with an error: else none of the above says anything."""
    script = tmp_path / "one.py"
    script.write_text("import sys; sys.argv = ['run.py', 'planted', '/dev/null']\n"
                      f"sys.path[:0] = [{str(FUZZ)!r}, {str(FUZZ.parent / 'src')!r}]\n"
                      "import targets\n"
                      "def planted(data): raise AssertionError('planted')\n"
                      "targets.TARGETS['planted'] = planted\n"
                      "import run; run.main()\n")  # fmt: skip
    done = subprocess.run((sys.executable, str(script)), capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    assert done.returncode != 0
    assert "planted" in done.stderr
