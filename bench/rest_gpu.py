"""What a rest before a pass costs on one CUDA device: after nothing, pauses, a collection of garbage, other work.

Wall milliseconds of single passes, and between events before the first and after the last kernel, median (least to
most); clocks as the driver says them right before. Recorded passes leave the host little to do: where they are slower
after a pause, the clocks had fallen; where only launched ones are, the host's caches were cold.

    python bench/rest_gpu.py
"""

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
import torch

from budget import Pass
from mainspring.backend.cuda.backend import CudaBackend
from mainspring.backend.protocol import PackedPass
from random_model import random_model
from score_gpu import make_pass
from shapes import CUDA_SHAPES

PASSES = {"1 x 8192": Pass(1, 8192, 8), "1 x 500": Pass(1, 500, 8), "8192 cached": Pass(1, 8192, 8, cached=True)}


def clutter(count: int = 400_000) -> list[list[int]]:
    """As many objects as the modules of a large library leave for the collector to look at."""
    return [[n] for n in range(count)]


def rests() -> dict[str, Callable[[], object]]:
    kept, square = clutter(), torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

    def busy() -> None:
        for _ in range(100):
            square @ square
        torch.cuda.synchronize()

    def cold() -> None:
        """Reads more than the host's caches hold."""
        np.zeros(1 << 25, np.int64).sum()

    def collect() -> int:
        return gc.collect() + 0 * len(kept)

    return {
        "nothing": lambda: None,
        "0.05 s": lambda: time.sleep(0.05),
        "0.3 s": lambda: time.sleep(0.3),
        "a collection of garbage": collect,
        "a collection, then 15 ms of products": lambda: (collect(), busy()),
        "host caches cold": cold,
        "host caches cold, then 15 ms of products": lambda: (cold(), busy()),
    }


def clock() -> str:
    try:
        return str(torch.cuda.clock_rate())
    except Exception as error:
        return type(error).__name__


def spread(found: list[float]) -> str:
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


@click.command(help=__doc__)
@click.option("--repeats", type=click.IntRange(3), default=7, show_default=True)
def main(repeats: int) -> None:
    shape = CUDA_SHAPES["0.8B"]

    def fresh(**options: Any) -> CudaBackend:
        return CudaBackend(random_model(shape, dtype=torch.bfloat16, device="cuda"), **options)

    backends = {"launches": fresh(graph_rows=0), "graphs": fresh()}
    before = rests()
    click.echo("| pass | how | after | wall ms | device ms | MHz before |\n|---|---|---|---:|---:|---:|")
    for name, p in PASSES.items():
        for how, backend in backends.items():
            try:
                states = [backend.prefill(np.arange(p.view) % 1000)] if p.cached else None
                work = make_pass(p, shape["vocab_size"], states=states)
                for _ in range(4):
                    backend.score_pass(work)
                for after, rest in before.items():
                    click.echo(f"| {name} | {how} | {after} | {measured(backend, work, rest, repeats)} |")
            except Exception as error:
                click.echo(f"| {name} | {how} | {type(error).__name__}: {str(error).splitlines()[0][:90]} |")


def measured(backend: CudaBackend, work: PackedPass, rest: Callable[[], object], repeats: int) -> str:
    walls, devices, mark = [], [], ""
    for _ in range(repeats):
        rest()
        mark = clock()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        started = time.perf_counter()
        begin.record()
        backend.score_pass(work)
        walls.append((time.perf_counter() - started) * 1e3)
        end.record()
        torch.cuda.synchronize()
        devices.append(begin.elapsed_time(end))
    return f"{spread(walls)} | {spread(devices)} | {mark}"


if __name__ == "__main__":
    main()
