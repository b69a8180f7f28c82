"""Children: backoff and crash loop without a clock; restarts, logs and death with real processes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mainspring.fleet import clock
from mainspring.fleet.supervise import CRASHES, FIRST_S, Children, LogFile, Restarts

SLEEPER = [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(600)"]


def test_backoff_doubles_and_a_crash_loop_ends() -> None:
    restarts = Restarts()
    now, delays = 0.0, []
    for _ in range(CRASHES):
        restarts.started(now)
        delay = restarts.exited(now + 0.1)
        delays.append(delay)
        now += 0.1 + (delay or 0.0)
    assert delays == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S, None]


def test_a_child_that_lasted_starts_from_the_beginning() -> None:
    restarts = Restarts()
    for start in range(0, 1000, 100):
        restarts.started(float(start))
        assert restarts.exited(start + 61.0) == FIRST_S


def test_logs_are_rotated_and_bounded(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "a.log", size=100, files=3)
    for number in range(100):
        log.write(f"line {number:03d}\n".encode())
    log.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    assert all(path.stat().st_size <= 100 for path in files)
    assert (tmp_path / "a.log").read_text().endswith("line 099\n")


async def until(what: Callable[[], bool], within_s: float = 30.0) -> None:
    async with asyncio.timeout(within_s):
        while not what():
            await asyncio.sleep(0.01)


def test_a_killed_child_is_told_of_and_started_again(tmp_path: Path) -> None:
    async def scene() -> None:
        exits: list[str] = []
        children = Children({"ant": SLEEPER}, tmp_path, exits.append, exits.append, clock.now_s)
        children.start()
        await until(lambda: children.pid("ant") is not None)
        await until(lambda: (tmp_path / "ant.log").exists() and "up" in (tmp_path / "ant.log").read_text())
        first = children.pid("ant")
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: children.pid("ant") not in (None, first))
        assert exits == ["ant"]
        await until(lambda: (tmp_path / "ant.log").read_text().count("up") == 2)
        last = children.pid("ant")
        assert last is not None
        await children.stop(10.0)
        assert not alive(last)

    asyncio.run(scene())


def test_a_crash_loop_is_given_up_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.fleet.supervise.FIRST_S", 0.01)

    async def scene() -> None:
        exits: list[str] = []
        lost: list[str] = []
        commands = {"bad": [sys.executable, "-c", "print('no'); raise SystemExit(3)"], "none": ["/nowhere/at/all"]}
        children = Children(commands, tmp_path, exits.append, lost.append, clock.now_s)
        children.start()
        await until(lambda: sorted(lost) == ["bad", "none"])
        assert exits.count("bad") == exits.count("none") == CRASHES
        await children.stop(1.0)
        assert (tmp_path / "bad.log").read_text().count("no") == CRASHES

    asyncio.run(scene())


def test_a_child_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    deaf = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True);"
            "time.sleep(600)"]  # fmt: skip

    async def scene() -> None:
        children = Children({"deaf": deaf}, tmp_path, lambda _: None, lambda _: None, clock.now_s)
        children.start()
        await until(lambda: (tmp_path / "deaf.log").exists() and "up" in (tmp_path / "deaf.log").read_text())
        pid = children.pid("deaf")
        assert pid is not None
        await children.stop(0.2)
        assert not alive(pid)

    asyncio.run(scene())


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells children only there")
def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = f"""
import asyncio, sys
from pathlib import Path
from mainspring.fleet.supervise import Children
async def main():
    children = Children({{"ant": {SLEEPER!r}}}, Path({str(tmp_path)!r}), print, print, lambda: 0.0)
    children.start()
    while children.pid("ant") is None:
        await asyncio.sleep(0.01)
    print(children.pid("ant"), flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)  # noqa: S603 - ours
    assert parent.stdout is not None
    with parent, parent.stdout:
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.kill()

    async def gone() -> None:
        await until(lambda: not alive(child))

    asyncio.run(gone())


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_disk_that_takes_nothing_loses_lines_and_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no").write_text("a file where a folder should be")
    lost = LogFile(tmp_path / "no" / "a.log")
    lost.write(b"nobody reads this\n")
    lost.close()

    log = LogFile(tmp_path / "a.log", size=100, files=3)
    log.write(b"x" * 90)
    opened = Path.open

    def full(*_arguments: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    for _ in range(3):
        log.write(b"y" * 90)  # a new file can't be begun, time after time
    monkeypatch.setattr(Path, "open", opened)
    log.write(b"z\n")
    log.close()
    assert (tmp_path / "a.log").read_text() == "z\n"
