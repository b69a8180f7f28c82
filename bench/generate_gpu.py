"""One decode or verify step, prefill and rounds on one CUDA device beside their floors: random weights, no text.

    python bench/generate_gpu.py                 # every row of the table in ADR 24, on a device
    python bench/generate_gpu.py --floors        # the floors and predictions alone, anywhere
    python bench/generate_gpu.py --case 0.8B-1x1 --profile

A step's time is device events around replays of its recorded round, the prediction beside it; a round's is the wall
clock through `GenerationBackend.round`, text unread. Bytes count each input once: weights, states read and written,
keys and values; at COPY bytes a second.
"""

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import click
import numpy as np

from mainspring.model.config import FULL, HybridConfig, parse_config
from shapes import CUDA_SHAPES

COPY = 4.2e12
LAUNCH_S = 2.2e-6
"""Of a dependent kernel within a graph, beside its bytes: an assumption until measured."""
STATE, ELEMENT = 4, 2


class Case(NamedTuple):
    """`slots` with `rows` each at `context` tokens; `must` and `aim` milliseconds, others' for comparison."""

    name: str
    shape: str
    slots: int
    rows: int
    context: int
    must: float
    aim: float
    others: str


CASES = (
    Case("0.8B-1x1", "0.8B", 1, 1, 1024, 1.2, 0.8, "library ops in a graph 1.44, vLLM 2.50"),
    Case("0.8B-32x1", "0.8B", 32, 1, 1024, 1.8, 1.3, "library ops in a graph 2.17, vLLM 3.61"),
    Case("0.8B-1x8", "0.8B", 1, 8, 8192, 1.5, 0.9, "library ops in a graph 4.4"),
    Case("4B-1x8", "4B", 1, 8, 8192, 3.2, 2.6, "library ops in a graph 8.7"),
)
PREFILL = 8192


def config(shape: str) -> HybridConfig:
    return parse_config(CUDA_SHAPES[shape])


def parameters(c: HybridConfig) -> int:
    """Read by a step: the body's matrices and the head."""
    d, F, D, Hq, G = c.hidden_size, c.intermediate_size, c.head_dim, c.num_attention_heads, c.num_key_value_heads
    full = c.layer_types.count(FULL)
    delta = c.num_layers - full
    mixed = d * (c.conv_dim + c.value_dim + 2 * c.linear_num_value_heads) + c.value_dim * d
    attending = d * (2 * Hq * D + 2 * G * D) + Hq * D * d
    return delta * mixed + full * attending + c.num_layers * 3 * d * F + c.vocab_size * d


def step_bytes(c: HybridConfig, slots: int, context: int) -> float:
    full = c.layer_types.count(FULL)
    state = (c.num_layers - full) * c.linear_num_value_heads * c.linear_key_head_dim * c.linear_value_head_dim * STATE
    keys = full * 2 * c.num_key_value_heads * c.head_dim * ELEMENT * context
    return parameters(c) * ELEMENT + slots * (2 * state + keys)


def launches(c: HybridConfig) -> int:
    """Of a step without a drafting head: five a gated-delta layer, six an attention layer; embedding, plan (two fills),
    three of rotary angles, last norm, head, choice (two), request, walk (a fill), outcome."""
    full = c.layer_types.count(FULL)
    return 5 * (c.num_layers - full) + 6 * full + 14


def predicted(c: HybridConfig, slots: int, context: int) -> float:
    return step_bytes(c, slots, context) / COPY + launches(c) * LAUNCH_S


def floors() -> str:
    lines = [
        "| step | GB | floor ms | launches | predicted ms | must / aim | others |",
        "|---|---:|---:|---:|---:|---|---|",
    ]
    for case in CASES:
        c = config(case.shape)
        moved = step_bytes(c, case.slots, case.context)
        lines.append(
            f"| {case.shape}, {case.slots} x {case.rows} rows at {case.context:,} | {moved / 1e9:.2f} "
            f"| {moved / COPY * 1e3:.2f} | {launches(c)} | {predicted(c, case.slots, case.context) * 1e3:.2f} "
            f"| {case.must} / {case.aim} | {case.others} |"
        )
    return "\n".join(lines)


# ---------------------------------------------------------------- on a device


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


MOST = 1 << 30


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
    kept = slots._arrays.words.clone()
    found = []
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


def measure(case: Case, repeats: int, profile: bool) -> str:
    import torch

    slots = slots_of(case)
    walls = wall_ms(Text(slots, case).advance, repeats)
    device = graph_ms(slots, repeats)
    if profile:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            graph_ms(slots, 5)
        click.echo(seen.key_averages().table(sort_by="self_cuda_time_total", row_limit=25))
    c = config(case.shape)
    idle = 1 - statistics.median(device) / statistics.median(walls)
    moved = step_bytes(c, case.slots, case.context)
    return (
        f"| {case.shape}, {case.slots} x {case.rows} rows at {case.context:,} | {spread(device)} | {spread(walls)} "
        f"| {idle:.1%} | {moved / COPY * 1e3:.2f} | {predicted(c, case.slots, case.context) * 1e3:.2f} "
        f"| {case.must} / {case.aim} | {case.others} |"
    )


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
def main(only_floors: bool, names: tuple[str, ...], repeats: int, profile: bool) -> None:
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
    click.echo(
        "| step | device ms: median (least-most) | wall ms a round | not in the graph | floor | predicted "
        "| must / aim | others |"
    )
    click.echo("|---|---|---|---:|---:|---:|---|---|")
    for case in CASES:
        if not names or case.name in names:
            click.echo(measure(case, repeats, profile))
            torch.cuda.empty_cache()
    if not names:
        click.echo(prompts(max(repeats // 3, 3)))


if __name__ == "__main__":
    main()
