"""One decode or verify step, prefill and rounds on one CUDA device beside their floors: random weights, no text.

    python bench/generate_gpu.py                 # every row of the table in ADR 24, on a device
    python bench/generate_gpu.py --floors        # the floors and predictions alone, anywhere
    python bench/generate_gpu.py --case 0.8B-1x1 --profile
    python bench/generate_gpu.py --trace-rounds 0    # without the second table

A step's time is device events around replays of its recorded round, the prediction beside it; a round's is the wall
clock through `GenerationBackend.round`, text unread. Bytes count each input once: weights, states read and written,
keys and values; at COPY bytes a second.

The second table is of recorded steady rounds (`round_trace.py`), made after everything is timed, since a profiler that
ran once may cost what comes after it: host waits a round, and the device's idle share. Rounds with host drafts (x8)
can't be launched ahead; 4B-1x1 stands there for those that are.
"""

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import click
import numpy as np

from generate_floors import CASES, COPY, Case, config, floors, predicted, step_bytes
from round_trace import RoundTrace, record
from shapes import CUDA_SHAPES

PREFILL = 8192
MOST = 1 << 30


def slots_of(case: Case) -> Any:
    """Slots of random weights, each at `context` tokens of random prompt."""
    import torch

    from mainspring.backend.cuda.backend import CudaBackend
    from mainspring.backend.generation import SlotLimits, TokenRule
    from random_model import random_model

    c = config(case.shape)
    backend = CudaBackend(random_model(CUDA_SHAPES[case.shape], dtype=torch.bfloat16, device="cuda"))
    slots = backend.generation(SlotLimits(case.slots, max(case.rows, 1)))
    generator = np.random.default_rng(0)
    for _ in range(case.slots):
        slot = slots.open_slot(drafting=False, capacity=case.context + 4096)
        prompt = generator.integers(0, c.vocab_size, case.context)
        slots.prefill_slot(slot, prompt)
        slots.begin(slot, TokenRule(), prompt)
    return slots


class Text:
    """Rounds of all slots, each asked for what is left, as streams ask; host drafts where a block has several rows."""

    def __init__(self, slots: Any, case: Case) -> None:
        from mainspring.backend.generation import NO_TOKEN

        self._slots, self._case = slots, case
        self._anchors, self._left = [NO_TOKEN] * case.slots, [MOST] * case.slots
        self.advance()

    def advance(self) -> None:
        from mainspring.backend.generation import NO_TOKEN, SlotRound

        drafts = (1,) * (self._case.rows - 1)
        parts = tuple(
            SlotRound(slot, anchor, left, drafts=() if anchor == NO_TOKEN else drafts)
            for slot, (anchor, left) in enumerate(zip(self._anchors, self._left, strict=True))
        )
        for slot, result in enumerate(self._slots.round(parts).slots):
            self._anchors[slot] = result.tokens[-1]
            self._left[slot] -= len(result.tokens)


def graph_ms(slots: Any, repeats: int) -> list[float]:
    """Device milliseconds of the last recorded round, replayed alone: its words say that nothing is left to do after
    the first, so they are put back before each."""
    import torch

    entries = slots._rounding._runner._entries
    entry = next(reversed(entries.values()))
    found = []
    with torch.inference_mode():  # as the words were made
        kept = slots._arrays.words.clone()
        for number in range(repeats + 3):
            slots._arrays.words.copy_(kept)
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            entry.graph.replay()
            end.record()
            torch.cuda.synchronize()
            if number >= 3:
                found.append(begin.elapsed_time(end))
        slots._arrays.words.copy_(kept)
    return found


def wall_ms(run: Callable[[], object], repeats: int) -> list[float]:
    found = []
    for number in range(repeats + 2):
        began = time.perf_counter()
        run()
        if number >= 2:
            found.append((time.perf_counter() - began) * 1e3)
    return found


def spread(found: list[float]) -> str:
    return f"{statistics.median(found):.3f} ({min(found):.3f}-{max(found):.3f})"


class Timed(NamedTuple):
    """Of one case: milliseconds of its recorded round and of whole rounds."""

    device: list[float]
    walls: list[float]

    @property
    def beside_graph(self) -> str:
        return f"{1 - statistics.median(self.device) / statistics.median(self.walls):.1%}"


def measure(case: Case, repeats: int) -> Timed:
    slots = slots_of(case)
    walls = wall_ms(Text(slots, case).advance, repeats)
    return Timed(graph_ms(slots, repeats), walls)


def row(case: Case, timed: Timed) -> str:
    c = config(case.shape)
    return (
        f"| {case.title} | {spread(timed.device)} | {spread(timed.walls)} | {timed.beside_graph} "
        f"| {step_bytes(c, case.slots, case.context) / COPY * 1e3:.2f} "
        f"| {predicted(c, case.slots, case.context) * 1e3:.2f} | {case.bounds} | {case.others} |"
    )


def trace_row(case: Case, timed: Timed, rounds: int) -> str:
    seen: RoundTrace = record(Text(slots_of(case), case).advance, rounds)
    return (
        f"| {case.title} | {seen.counted()} | {seen.launches / rounds:.1f} | {seen.busy_us / rounds / 1e3:.3f} "
        f"| {seen.idle(statistics.median(timed.walls) * 1e3):.1%} | {seen.idle():.1%} | {timed.beside_graph} |"
    )


def kernels(case: Case) -> str:
    """Of five replays, by time."""
    import torch

    slots = slots_of(case)
    text = Text(slots, case)
    text.advance()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        graph_ms(slots, 5)
    table: str = seen.key_averages().table(sort_by="self_cuda_time_total", row_limit=25)
    return table


def or_reason(case: Case, run: Callable[[], str]) -> str:
    """A profiler needs rights and counters that a machine may not give: what is asked of others still comes."""
    try:
        return run()
    except Exception as error:
        return f"{case.title}: {type(error).__name__}: {error}"


def prompts(repeats: int) -> str:
    """Cold prefill of 8,192 tokens to the first token, and an exact repeat, in process."""
    from mainspring.backend.generation import NO_TOKEN, SlotRound, TokenRule

    slots = slots_of(CASES[0])
    slots.close_slot(0)
    generator = np.random.default_rng(1)
    found: dict[str, list[float]] = {"cold": [], "repeat": []}
    for number in range(repeats + 2):
        tokens = generator.integers(0, config("0.8B").vocab_size, PREFILL)
        kept = None
        for kind in found:
            began = time.perf_counter()
            slot = slots.open_slot(drafting=False, capacity=PREFILL + 256)
            if kept is None:
                slots.prefill_slot(slot, tokens)
                kept = slots.save(slot)
            else:
                slots.restore(slot, kept)
            slots.begin(slot, TokenRule(), tokens)
            slots.round((SlotRound(slot, NO_TOKEN, 2),))
            if number >= 2:
                found[kind].append((time.perf_counter() - began) * 1e3)
            slots.close_slot(slot)
        slots.release(kept)
    return (
        f"| 0.8B, prompt of {PREFILL:,} to the first token, in process | {spread(found['cold'])} "
        "| must 45, aim 25 through HTTP |\n"
        f"| exact repeat | {spread(found['repeat'])} | must 25, aim 10 through HTTP |"
    )


@click.command()
@click.option("--floors", "only_floors", is_flag=True)
@click.option("--case", "names", multiple=True, type=click.Choice([case.name for case in CASES]))
@click.option("--repeats", default=30, show_default=True)
@click.option("--profile", is_flag=True, help="Kernels of five replays, by time.")
@click.option("--trace-rounds", type=click.IntRange(0, 1000), default=20, show_default=True, help="0: no second table.")
def main(only_floors: bool, names: tuple[str, ...], repeats: int, profile: bool, trace_rounds: int) -> None:
    if only_floors:
        click.echo(floors())
        return
    import torch

    git, commit = shutil.which("git"), ""
    if git is not None:
        commit = subprocess.run(  # noqa: S603
            [git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        ).stdout.strip()
    click.echo(f"commit {commit or 'unknown'}, {torch.cuda.get_device_name()}, torch {torch.__version__}, {sys.argv}")
    cases = [case for case in CASES if not names or case.name in names]
    click.echo(
        "| step | device ms: median (least-most) | wall ms a round | not in the graph | floor | predicted "
        "| must / aim | others |"
    )
    click.echo("|---|---|---|---:|---:|---:|---|---|")
    timed: dict[str, Timed] = {}
    for case in cases:
        timed[case.name] = measure(case, repeats)
        click.echo(row(case, timed[case.name]))
        torch.cuda.empty_cache()
    if not names:
        click.echo(prompts(max(repeats // 3, 3)))
        torch.cuda.empty_cache()
    if trace_rounds:
        click.echo(
            f"\n{trace_rounds} recorded rounds\n\n"
            "| step | host waits and unpinned copies a round | kernels a round | device ms a round "
            "| idle of a round as timed | idle while recorded | not in the graph |\n|---|---|---:|---:|---:|---:|---:|"
        )
        for case in cases:
            click.echo(or_reason(case, partial(trace_row, case, timed[case.name], trace_rounds)))
            torch.cuda.empty_cache()
    for case in cases if profile else ():
        click.echo(or_reason(case, partial(kernels, case)))
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
