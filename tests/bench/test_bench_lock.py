import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.fakes import FakeClock
from mainspring.bench.lock import LockHeldError, default_path, exclusive

HOLDER = """
import sys
from pathlib import Path
from mainspring.bench.lock import exclusive
with exclusive(Path(sys.argv[1]), wait_limit_s=0):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until its stdin closes."""
    source = str(Path(__file__).parents[2] / "src")
    command = [sys.executable, "-c", HOLDER, str(path)]
    environment = {**os.environ, "PYTHONPATH": source}
    with subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_process_is_kept_out_and_told_by_whom(tmp_path: Path) -> None:
    path, clock, said = tmp_path / "lock", FakeClock(), list[str]()
    with (
        holder(path) as other,
        pytest.raises(LockHeldError, match=f"pid {other.pid}") as caught,
        exclusive(path, wait_limit_s=5, clock_ns=clock, sleep=clock.advance, say=said.append),
    ):
        pytest.fail("two holders")
    assert caught.value.pid == other.pid
    assert said == [f"waiting for another benchmark (pid {other.pid})"]
    assert clock.now_ns >= 5e9


def test_a_crash_releases_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as other:
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert path.read_text() == f"{other.pid}\n"  # stale, and without effect
        with exclusive(path, wait_limit_s=0):
            assert path.read_text() == f"{os.getpid()}\n"


def test_a_waiter_gets_the_lock_when_its_holder_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as other:

        def end_it(_seconds: float) -> None:
            other.kill()
            other.wait()

        with exclusive(path, wait_limit_s=60, clock_ns=FakeClock(), sleep=end_it):
            assert path.read_text() == f"{os.getpid()}\n"
    assert path.read_text() == ""


def test_children_started_meanwhile_do_not_keep_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with exclusive(path, wait_limit_s=0):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    try:
        with exclusive(path, wait_limit_s=0):
            pass
    finally:
        child.communicate(b"\n")


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "lock").symlink_to(target)
    with pytest.raises(OSError, match="symbolic"), exclusive(tmp_path / "lock", wait_limit_s=0):
        pass
    assert target.read_text() == "precious"


def test_the_default_is_one_file_a_user() -> None:
    assert default_path().name == f"mainspring-bench-{os.getuid()}.lock"
