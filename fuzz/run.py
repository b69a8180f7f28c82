"""Runs a target of `targets.py` under atheris: coverage-guided, until it finds something or the time is over.

    pip install atheris                                   (wheels for Linux on x86-64)
    python fuzz/run.py router --seconds 120               a corpus in build/fuzz/router is used and grown
    python fuzz/run.py all --runs 1000                    every target one after the other, for a quick look
    python fuzz/run.py router crash-0123abcd              one input again, under any Python, without atheris

Ends with an error and leaves `crash-*` in build/fuzz where a target raised. The same targets run under Hypothesis with
the tests.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]
LONGEST = 2048
MEMORY_MIB = 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("input", nargs="*", type=Path)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--runs", type=int, default=-1)
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument(
        "--build", type=Path, default=HERE.parent / "build" / "fuzz", help="corpora and crashes go there"
    )
    asked = parser.parse_args()
    if asked.input:
        from targets import TARGETS

        for path in asked.input:
            TARGETS[asked.target](path.read_bytes())
            print(f"{path}: nothing raised")
        return

    import atheris

    with atheris.instrument_imports(include=["mainspring"]):
        from targets import TARGETS

    import logging

    logging.disable(logging.CRITICAL)
    if asked.target != "all":
        fuzz(asked, asked.target, TARGETS[asked.target])
    failed = [name for name, target in TARGETS.items() if in_a_child(lambda: fuzz(asked, name, target))]  # noqa: B023
    if failed:
        sys.exit(f"something was found: {', '.join(failed)}")


def fuzz(asked: argparse.Namespace, name: str, target: Callable[[bytes], None]) -> None:
    """Does not come back: the engine ends the process."""
    import atheris

    corpus = asked.build / name
    corpus.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={asked.seconds}", f"-runs={asked.runs}", f"-max_len={LONGEST}", f"-seed={asked.seed}",
               f"-rss_limit_mb={MEMORY_MIB}", f"-artifact_prefix={asked.build}/", "-print_final_stats=1",
               "-timeout=10", "-len_control=0"]  # fmt: skip
    print(f"== {name}", file=sys.stderr, flush=True)
    atheris.Setup([sys.argv[0], *options, str(corpus)], target)
    atheris.Fuzz()


def in_a_child(run: Callable[[], None]) -> int:
    """Its exit status; what was imported and instrumented is shared."""
    child = os.fork()
    if child == 0:
        try:
            run()
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


if __name__ == "__main__":
    main()
