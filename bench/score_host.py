"""Host time of CUDA scoring passes, without a device: token ids in, everything but the device's own work, logits out.

The network is of one small layer and the recorded graph does nothing, so what is left is what the host adds to a pass:
shapes, tables, and what `score_pass` does around them. Tables depend on lengths, heads of attention and the
convolution, which are those of the 0.8B shape. "seen" repeats a pass; for "unseen" what was kept of its lengths is
forgotten before each, but not what follows from its branches alone.

    python bench/score_host.py
    python bench/score_host.py --profile "1 x 500"     # where it goes, by function
"""

import cProfile
import pstats
import time
from collections.abc import Callable
from types import SimpleNamespace
from unittest import mock

import click
import numpy as np
import torch

from budget import Pass
from mainspring.backend.cuda import graphs, lengths
from mainspring.backend.cuda.backend import CudaBackend
from mainspring.backend.cuda.graphs import Buffers, Recorded, Runner
from mainspring.backend.cuda.layout import Shape
from mainspring.backend.protocol import PackedPass
from random_model import random_model
from score_gpu import make_pass
from shapes import CUDA_SHAPES

CASES = {
    "1 x 500": Pass(1, 500, 8),
    "8192 cached": Pass(1, 8192, 8, cached=True),
    "8 x 2048": Pass(8, 2048, 8),
    "1 x 8192": Pass(1, 8192, 8),
}
SHAPE = CUDA_SHAPES["0.8B"] | {
    "vocab_size": 4096, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
    "layer_types": ["full_attention"],
}  # fmt: skip
GRAPH_ROWS = 32_768
"""So that no pass here is launched."""


def backend() -> CudaBackend:
    made = CudaBackend(random_model(SHAPE, dtype=torch.bfloat16, device="cpu"), pass_rows=GRAPH_ROWS)
    made._runner.graph_rows = GRAPH_ROWS
    return made


def record(runner: Runner, shape: Shape) -> Recorded:
    return Recorded(Buffers(runner.network, shape), SimpleNamespace(replay=lambda: None), torch.zeros(0))


def taken_us(run: Callable[[], object], times: int) -> str:
    """Median and, since other work only ever adds, the tenth of the least."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        taken.append(time.perf_counter() - started)
    return "{:.0f} ({:.0f})".format(*np.quantile(taken, (0.5, 0.1)) * 1e6)


@click.command()
@click.option("--times", default=200, help="Passes of each kind.")
@click.option("--profile", type=click.Choice(list(CASES)), help="Profile this one, repeated.")
def main(times: int, profile: str | None) -> None:
    device = backend()
    click.echo("| pass | seen, us: median (10 %) | unseen |\n|---|---:|---:|")
    with mock.patch.object(Runner, "_record", record), mock.patch.object(graphs, "AT_ONCE_ROWS", GRAPH_ROWS):
        for name, p in CASES.items():
            if profile not in (None, name):
                continue
            handles = [device.prefill(np.arange(p.view) % 1000) for _ in range(p.requests)] if p.cached else []
            work = make_pass(p, SHAPE["vocab_size"], states=handles)

            def seen(work: PackedPass = work) -> None:
                device.score_pass(work)

            def unseen(work: PackedPass = work) -> None:
                lengths._kept.cache_clear()
                device.score_pass(work)

            seen()
            click.echo(f"| {name} | {taken_us(seen, times)} | {taken_us(unseen, times)} |")
            if profile:
                with cProfile.Profile() as record_:
                    for _ in range(times):
                        device.score_pass(work)
                pstats.Stats(record_).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
