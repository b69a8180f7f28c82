"""The check of a bundle as it is: another process, which unpacks, is confined, and is ended with whoever started it."""

import asyncio
import hashlib
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mainspring.fleet.bundle_check import CHECK_S, Unpacking, by_unpacking
from mainspring.fleet.bundles import MAX_BYTES, BundleCache
from mainspring.fleet.config import read_config
from mainspring.fleet.errors import BundleError
from mainspring.fleet.offloop import attempt
from mainspring.fleet.serve import Serving
from mainspring.text.bundle import Bundle
from mainspring.text.identify import CPU_S
from mainspring.wire.pki_files import PkiFolder
from support.tiny_tokenizer import write_tiny_tokenizer


def packed(folder: Path) -> tuple[str, bytes]:
    bundle = Bundle.load(write_tiny_tokenizer(folder))
    return bundle.hash, bundle.pack()


def test_the_check_unpacks_in_a_process_of_its_own(tmp_path: Path) -> None:
    name, data = packed(tmp_path / "a")
    by_unpacking(name, data)
    with pytest.raises(BundleError, match="another hash"):
        by_unpacking("0" * 64, data)
    with pytest.raises(BundleError, match="no bundle"):
        by_unpacking(name, data[:-10])
    with pytest.raises(BundleError, match="no bundle"):
        by_unpacking(name, b"")


def test_bytes_that_crash_or_delay_whoever_unpacks_them_are_no_bundle() -> None:
    begins = "print('ready', flush=True);"
    crash = (sys.executable, "-c", begins + "import os; os.abort()")
    with pytest.raises(BundleError, match="ends with -6"):
        by_unpacking("a", b"x", crash)
    seen: list[subprocess.Popen[bytes]] = []

    class Noting(Unpacking):
        def _talk(self, process: "subprocess.Popen[bytes]", data: bytes) -> tuple[int | None, bytes, bytes]:
            seen.append(process)
            return super()._talk(process, data)

    check = Noting((sys.executable, "-c", begins + "import time; time.sleep(60)"), 5.0)
    with pytest.raises(BundleError, match="within 5 s"):
        check("a", b"x")
    assert [process.returncode for process in seen] == [-signal.SIGKILL], "killed, and waited for"
    assert not check._running
    with pytest.raises(OSError, match="No such file"):
        by_unpacking("a", b"x", ("/nonexistent",))


@pytest.mark.parametrize(
    "script",
    [
        "raise ImportError('half an upgrade')",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "print('ready', flush=True); import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "print('ready', flush=True); import os, signal; signal.signal(2, signal.SIG_DFL); os.kill(os.getpid(), 2)",
    ],
    ids=["does not start", "dies before it has begun", "told to end", "interrupted"],
)
def test_what_is_not_the_bytes_doing_is_no_fault_of_theirs(script: str) -> None:
    """A service manager that ends all processes of the router cost a sound node its link."""
    with pytest.raises(OSError, match=r"told to end|before it began"):
        by_unpacking("a", b"x", (sys.executable, "-c", script))


def test_the_process_that_unpacks_shares_no_terminal() -> None:
    script = "import os, sys; print('ready', flush=True); sys.exit(0 if os.getpid() == os.getsid(0) else 7)"
    with pytest.raises(BundleError, match="another hash"):
        by_unpacking("a", b"x", (sys.executable, "-c", script))


def test_who_ends_does_not_wait_for_a_check() -> None:
    """A thread that waits for it would keep the process for half a minute."""
    slow = (sys.executable, "-c", "print('ready', flush=True); import time; time.sleep(60)")
    check = Unpacking(slow)
    with ThreadPoolExecutor(1) as executor:
        ending = executor.submit(attempt, lambda: check("a", b"x"))
        while not check._running:
            time.sleep(0.01)
        check.stop()
        assert isinstance(ending.result(timeout=20.0), OSError)
    with pytest.raises(OSError, match="no bundle is checked any more"):
        check("a", b"x")


def test_an_orphan_s_time_is_bounded() -> None:
    """Its router may be gone: then nobody else ends it."""
    script = "from mainspring.text import identify; identify.CPU_S = 1; identify.confine()\nwhile True: pass"
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, check=False, timeout=60)  # noqa: S603
    assert -done.returncode in (signal.SIGKILL, signal.SIGXCPU)
    assert CPU_S <= CHECK_S


def test_a_router_that_ends_ends_its_checks(tmp_path: Path) -> None:
    pki = PkiFolder.create(tmp_path / "pki", "fleet", time.time())
    folder = pki.issue("router", "hill", time.time())
    config = read_config(
        None, router__listen="127.0.0.1:0", router__state=str(tmp_path / "state"), tls__folder=str(folder),
        router__transports=["tcp"],
    )  # fmt: skip

    async def scene() -> None:
        serving = Serving(config)
        bundles = serving.shell.bundles
        bundles._unpacking.command = (sys.executable, "-c", "import time; time.sleep(60)")
        run = asyncio.create_task(serving.run())
        await serving.ready.wait()
        outcomes: list[object] = []
        serving.shell.off_loop.run(
            lambda: bundles.admit("a", b"x", size=1, sha256=hashlib.sha256(b"x").hexdigest()),
            lambda outcome, _now_s: outcomes.append(outcome), 0.0,
        )  # fmt: skip
        while not bundles._unpacking._running:
            await asyncio.sleep(0.01)
        serving.stop()
        await run
        while not outcomes:
            await asyncio.sleep(0.01)
        assert isinstance(outcomes[0], OSError)

    asyncio.run(asyncio.wait_for(scene(), 30.0))


def test_a_file_larger_than_a_bundle_can_be_is_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (tmp_path / "a.bundle").open("wb") as file:
        file.truncate(MAX_BYTES + 33)
    assert BundleCache(tmp_path).load("a") is None
    assert "too large" in caplog.text
