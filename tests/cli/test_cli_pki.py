"""`mainspring pki`: from nothing to a revoked node."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]


@pytest.fixture
def pki(run: Run, tmp_path: Path) -> Callable[..., Result]:
    def call(*arguments: str) -> Result:
        return run("pki", arguments[0], *arguments[1:], "--dir", tmp_path / "pki")

    assert call("init").exit_code == 0
    return call


def test_a_certificate_s_life(pki: Callable[..., Result], tmp_path: Path) -> None:
    for arguments in (("router", "hill", "--host", "router.example.org"), ("node", "ant"), ("client", "gate")):
        result = pki("issue", *arguments)
        assert result.exit_code == 0
        assert result.stdout.strip() == str(tmp_path / "pki" / f"{arguments[0]}-{arguments[1]}")
    assert pki("revoke", "node", "ant").stdout.startswith("revoked ")
    shown = [json.loads(line) for line in pki("show", "--json").stdout.splitlines()]
    assert [(each["role"], each["name"], each["state"]) for each in shown] == [
        ("client", "gate", "valid"),
        ("node", "ant", "revoked"),
        ("router", "hill", "valid"),
    ]
    lines = pki("show").stdout.splitlines()
    assert len(lines) == 3
    assert shown[0]["serial"] in lines[0]


def test_faults_are_one_line_and_exit_code_2(pki: Callable[..., Result], run: Run, tmp_path: Path) -> None:
    for result in (
        pki("init"),
        pki("issue", "node", "Not A Name"),
        pki("issue", "node", "ant", "--host", "a.test"),
        pki("issue", "king", "ant"),
        pki("issue", "node", "ant", "--days", "10000"),
        pki("revoke", "node", "nobody"),
        run("pki", "show", "--dir", tmp_path / "nowhere"),
    ):
        assert result.exit_code == 2
        assert "Traceback" not in result.stderr


def test_no_key_is_ever_printed(pki: Callable[..., Result]) -> None:
    assert "PRIVATE" not in pki("issue", "node", "ant").output + pki("show").output
