"""The loop: arms in palindrome order, timed one at a time on a machine that nobody else uses.

A round runs A B C C B A, so every arm has the same mean position in it and linear drift (heat, clocks, caches filling)
cancels within each round. Warm-ups run before, unrecorded. A sample is: setup, collect garbage and switch collection
off, sync, clock, run, sync, clock; what an arm left queued on a device is billed to it and to nobody after it.
Clock, sleep, load and lock come from a `Host`, so tests run without time passing.
"""

import gc
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mainspring.bench import environment, lock, stats
from mainspring.bench.load import LoadSource, system_source, wait_until_quiet
from mainspring.bench.report import Options, Report
from mainspring.bench.stats import Sample


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of doing the work.

    `run` does it once and returns how many units (tokens, requests, FLOP) it did: finite and above 0. `setup` runs
    before every sample, untimed (thread counts, fresh inputs). `sync` blocks until the device is idle.
    """

    name: str
    run: Callable[[], float]
    setup: Callable[[], object] | None = None
    sync: Callable[[], object] | None = None


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Host:
    """What the harness takes from the machine."""

    clock_ns: Callable[[], int] = time.perf_counter_ns
    sleep: Callable[[float], object] = time.sleep
    load: LoadSource = field(default_factory=system_source)
    lock_path: Path = field(default_factory=lock.default_path)
    say: Callable[[str], object] = _say


def palindrome(arms: Sequence[Arm], rounds: int) -> Iterator[tuple[int, Arm]]:
    """(round, arm) in order of execution: A B C C B A, A B C C B A, ..."""
    for number in range(rounds):
        for arm in (*arms, *reversed(arms)):
            yield number, arm


def measure(
    arms: Sequence[Arm],
    options: Options | None = None,
    *,
    title: str,
    unit: str,
    device: str | None = None,
    host: Host | None = None,
) -> Report:
    """Measure `arms` against the first of them; `unit` names what `run` counts, `device` where it happens.

    Raises LockHeldError when another benchmark doesn't end in time, ValueError for arms without distinct names or with
    impossible results. A machine that stays busy is no error: the report is marked.
    """
    options = options or Options()
    host = host or Host()
    if not arms or len({arm.name for arm in arms}) != len(arms):
        raise ValueError("arms need distinct names, and there must be one at least")
    held = lock.exclusive(
        host.lock_path,
        wait_limit_s=options.lock_limit_s if options.wait else 0.0,
        clock_ns=host.clock_ns,
        sleep=host.sleep,
        say=host.say,
    )
    with held:
        gate = wait_until_quiet(
            host.load,
            limit_share=options.busy_share,
            wait_limit_s=options.quiet_limit_s if options.wait else 0.0,
            sleep=host.sleep,
            clock_ns=host.clock_ns,
            say=host.say,
        )
        where = environment.record(device)  # before arms change thread counts and raise the load average
        for _ in range(options.warmups):
            for arm in arms:
                _sample(arm, host, 0, 0)
        order = enumerate(palindrome(arms, options.rounds))
        samples = tuple(_sample(arm, host, number, position) for position, (number, arm) in order)
    others = stats.others_cores(samples)
    arm_stats, ratios = stats.summarize(samples, seed=options.seed)
    return Report(
        title=title,
        unit=unit,
        quiet=gate.quiet and (others is None or others < gate.limit_cores),
        gate=gate,
        others_cores=others,
        options=options,
        environment=where,
        arms=arm_stats,
        ratios=ratios,
        samples=samples,
    )


def _sample(arm: Arm, host: Host, number: int, position: int) -> Sample:
    if arm.setup is not None:
        arm.setup()
    sync = arm.sync or _nothing
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        mark = host.load.mark()
        sync()
        started_ns = host.clock_ns()
        units = arm.run()
        sync()
        elapsed_ns = host.clock_ns() - started_ns
        others = host.load.others_since(mark)
    finally:
        if collecting:
            gc.enable()
    if not (math.isfinite(units) and units > 0 and elapsed_ns > 0):
        raise ValueError(f"arm {arm.name!r} did {units} units in {elapsed_ns} ns")
    return Sample(arm.name, number, position, float(units), elapsed_ns, others)


def _nothing() -> None:
    pass
