"""Where and from what a number came: commit, versions, device, load, command line.

Records travel with results into public places, so nothing here may tell a home folder, a host or a credential:
absolute paths shrink to their last component, hosts in URLs and this machine's name go, values of secret-looking
options go. Versions come from metadata; torch is asked for its thread count only where the caller imported it already.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from mainspring.version import __version__

_PATH = re.compile(r"(?<![\w.~/…])(?:~|[A-Za-z]:)?(?!(?<=:)//)[/\\](?:[^/\\\s=:,'\"]+[/\\])*([^/\\\s=:,'\"]*)")
_HOST = re.compile(r"://[^/\s]+")
_SECRET = re.compile(r"^(--?[\w-]*(?:key|token|secret|password))(=.*)?$", re.IGNORECASE)


class Environment(msgspec.Struct, frozen=True):
    commit: str | None  # of the checkout the package runs from; None for an installed package
    dirty: bool | None  # tracked files changed, or Python files not tracked
    package: str
    python: str
    numpy: str | None
    torch: str | None
    device: str
    cores: int
    usable_cores: int  # this process's affinity
    threads: int | None  # torch's, once imported, before any arm's setup
    load_average: tuple[float, float, float]
    kernel: str
    date: str  # UTC, ISO 8601
    command: str


def record(device: str | None = None) -> Environment:
    """Describe this process and machine; `device` names an accelerator, the CPU's model stands in for none."""
    commit, dirty = _commit(Path(__file__).resolve())
    return Environment(
        commit=commit,
        dirty=dirty,
        package=__version__,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        numpy=_version("numpy"),
        torch=_version("torch"),
        device=device or _cpu_model(),
        cores=os.cpu_count() or 1,
        usable_cores=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1,
        threads=_torch_threads(),
        load_average=os.getloadavg(),
        kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=scrub(sys.argv, host=platform.node()),
    )


def scrub(arguments: Sequence[str], *, host: str) -> str:
    """The command line without folders, hosts and secrets."""
    shown: list[str] = []
    hide_next = False
    for argument in arguments:
        secret = _SECRET.match(argument)
        if hide_next:
            argument = "***"
        elif secret is not None:
            argument = secret[1] if secret[2] is None else f"{secret[1]}=***"
        hide_next = secret is not None and secret[2] is None and not hide_next
        argument = _PATH.sub(r"…/\1", _HOST.sub("://…", argument))
        shown.append(re.sub(rf"(?<!\w){re.escape(host)}(?!\w)", "host", argument) if host else argument)
    return " ".join(shown)


def _commit(module: Path) -> tuple[str | None, bool | None]:
    git = shutil.which("git")
    # A package installed inside some other project's checkout must not borrow that project's commit.
    if git is None or _git(git, module.parent, "ls-files", "--error-unmatch", module.name) is None:
        return None, None
    commit = _git(git, module.parent, "rev-parse", "HEAD")
    status = _git(git, module.parent, "status", "--porcelain", "--untracked-files=all")
    if commit is None or status is None:
        return None, None
    # Untracked results of an earlier run don't change a measurement; untracked code may.
    return commit, any(not line.startswith("??") or line.endswith(".py") for line in status.splitlines())


def _git(git: str, folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run([git, *arguments], cwd=folder, capture_output=True, text=True, timeout=30, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _torch_threads() -> int | None:
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.get_num_threads())


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return found[1].strip()
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()  # noqa: S603
        except (OSError, subprocess.SubprocessError):
            pass
    return platform.processor() or platform.machine()
