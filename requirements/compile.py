"""Compile pyproject.toml into runtime.lock and dev.lock: exact versions with hashes, torch excepted.

torch's wheels differ by platform and accelerator, so no one set of hashes fits; the Makefile pins its version and
installs it after a lock. Here it is dropped from the input, and what it needs that is pure Python takes its place: pip,
installing torch last, finds all of that present and takes nothing but torch and its accelerator wheels. Everything of
[build-system] is in both locks, for installs without build isolation.

Needs Python 3.11 and pip-tools; never downloads torch. Pins already in a lock stay unless `--upgrade` is passed on.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# `Requires-Dist` of the torch release pinned in the Makefile, without extras and accelerator wheels.
TORCH_NEEDS = (
    "filelock",
    "fsspec>=0.8.5",
    "jinja2",
    "networkx>=2.5.1",
    "setuptools>=77.0.3",
    "sympy>=1.13.3",
    "typing-extensions>=4.10.0",
)
# hatchling asks for it when the package is installed editable, beyond [build-system].
EDITABLE_NEEDS = ("editables~=0.3",)
EXTRAS = ("hub", "fast", "plots", "grammar")
NEVER = re.compile(r"^(torch|nvidia-[a-z0-9-]+|cuda-[a-z0-9-]+)(?![a-z0-9-])", re.IGNORECASE | re.MULTILINE)
FLAGS = (
    "--generate-hashes",
    "--allow-unsafe",  # setuptools, which torch needs at run time
    "--strip-extras",
    "--no-header",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-emit-trusted-host",
    "--no-emit-options",
    "--annotation-style=line",
    "--newline=lf",
    "--no-config",
    "--quiet",
)


def inputs(pyproject: dict[str, Any]) -> dict[str, list[str]]:
    """Requirement lines for each lock; dev's are a superset of runtime's."""
    project, groups, build = pyproject["project"], pyproject["dependency-groups"], pyproject["build-system"]
    runtime = [*project["dependencies"], *TORCH_NEEDS, *build["requires"], *EDITABLE_NEEDS]
    extras = [line for extra in EXTRAS for line in project["optional-dependencies"][extra]]
    chosen = {"runtime": runtime, "dev": [*runtime, *extras, *groups["dev"]]}
    return {name: [line for line in lines if not NEVER.match(line)] for name, lines in chosen.items()}


def compile_lock(name: str, lines: list[str], constraint: str | None, arguments: list[str]) -> str:
    """Run pip-compile where only relative names exist, so that none of this machine's paths reach the annotations."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "pyproject.in").write_text("\n".join(lines) + "\n", encoding="utf-8")
        lock = HERE / f"{name}.lock"
        if lock.exists():
            shutil.copy(lock, work)  # pip-compile keeps the pins it finds in its output file
        if constraint is not None:
            (work / "runtime.lock").write_text(constraint, encoding="utf-8")
        command = [sys.executable, "-m", "piptools", "compile", *FLAGS, *arguments, f"--output-file={name}.lock"]
        command += ["--constraint=runtime.lock"] if constraint is not None else []
        subprocess.run([*command, "pyproject.in"], cwd=work, check=True)  # noqa: S603
        return (work / f"{name}.lock").read_text(encoding="utf-8")


def check(name: str, text: str) -> None:
    """Refuse a lock that names torch, an index or a path."""
    for pattern in (NEVER, re.compile(r"^--", re.MULTILINE), re.compile(r"://"), re.compile(r" @ ")):
        if found := pattern.search(text):
            sys.exit(f"{name}.lock must not contain {found.group()!r}; left as it was")


def main(arguments: list[str]) -> None:
    if sys.version_info[:2] != (3, 11):
        sys.exit("compile with Python 3.11, the oldest supported: markers are resolved for the Python that runs this")
    pyproject = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    runtime: str | None = None
    for name, lines in inputs(pyproject).items():  # runtime first: dev takes its versions as constraints
        text = compile_lock(name, lines, runtime, arguments)
        check(name, text)
        (HERE / f"{name}.lock").write_text(text, encoding="utf-8")
        runtime = text


if __name__ == "__main__":
    main(sys.argv[1:])
