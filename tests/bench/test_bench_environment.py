import json
import platform
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from mainspring.bench import environment


def test_the_record_says_nothing_private(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Path.home()
    arguments = [f"{home}/src/bench/gemm.py", "--out", str(home / "results"), f"--model={home}/models/tiny"]
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr(platform, "node", lambda: "secrethost")
    record = environment.record("Test device")
    text = msgspec.json.encode(record).decode()
    assert str(home) not in text
    assert str(Path.cwd()) not in text
    assert "secrethost" not in text
    assert record.command == "…/gemm.py --out …/results --model=…/tiny"
    assert record.device == "Test device"


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("bench/gemm.py", "bench/gemm.py"),
        ("/srv/data/x.json", "…/x.json"),
        ("~/x/y", "…/y"),
        (r"C:\data\joe\x", "…/x"),
        ("--pair=/a/b:/c/d", "--pair=…/b:…/d"),
        ("--url=http://10.0.0.7:8000/v1", "--url=http://…/v1"),
        ("box7", "host"),
        ("box71", "box71"),
        ("--ratio=1/2", "--ratio=1/2"),
    ],
)
def test_arguments_are_scrubbed(argument: str, shown: str) -> None:
    assert environment.scrub([argument], host="box7") == shown


def test_secrets_are_hidden_and_counts_are_not() -> None:
    arguments = ["--api-key", "k1", "--token=t1", "--max-tokens", "128", "--password", "--token"]
    shown = environment.scrub(arguments, host="")
    assert shown == "--api-key *** --token=*** --max-tokens 128 --password ***"


def test_torch_is_not_imported_for_its_version() -> None:
    code = (
        "import sys; from mainspring.bench import environment as e; r = e.record(); "
        "import json; print(json.dumps(['torch' in sys.modules, r.threads]))"
    )
    source = str(Path(environment.__file__).parents[2])
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": source}
    )
    assert json.loads(done.stdout) == [False, None]


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)  # noqa: S603, S607


def test_the_commit_is_the_packages_own(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("1")
    assert environment._commit(module) == (None, None)  # no repository
    git(tmp_path, "init", "--quiet")
    assert environment._commit(module) == (None, None)  # somebody else's repository: not tracked in it
    git(tmp_path, "add", "module.py")
    git(tmp_path, "commit", "--quiet", "-m", "x")
    commit, dirty = environment._commit(module)
    assert commit is not None
    assert len(commit) == 40
    assert dirty is False
    (tmp_path / "results.json").write_text("{}")
    assert environment._commit(module)[1] is False
    (tmp_path / "new.py").write_text("1")
    assert environment._commit(module)[1] is True
    (tmp_path / "new.py").unlink()
    module.write_text("2")
    assert environment._commit(module)[1] is True
