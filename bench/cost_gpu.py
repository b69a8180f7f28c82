"""How well few coefficients predict the time of a pass on one CUDA device.

Random passes (1 to 8 views of 100 to 16,000 tokens, 1 to 64 branches of 10 to 64 each, a third of the views kept) are
timed; the node's model is fitted on the first ones and judged on the rest, with three terms (fixed, view tokens, branch
rows) and with a fourth (attention pairs). What matters is the error in ms and in share of the pass.

    python bench/cost_gpu.py --passes 500
"""

import click
import numpy as np
import torch

from mainspring.backend.cuda.backend import CudaBackend
from mainspring.backend.protocol import NO_STATE, PackedPass
from mainspring.core.cost import Cost, Sample, fit
from mainspring.core.nouns import pairs
from random_model import random_model
from shapes import CUDA_SHAPES

PRIOR = Cost(1e-3, 2e-6, 3e-6)


class Passes:
    """Random passes on one backend, with kept views of a few lengths to fork."""

    def __init__(self, backend: CudaBackend, vocab: int, seed: int) -> None:
        self.backend, self.vocab = backend, vocab
        self.rng = np.random.default_rng(seed)
        self.kept = {n: backend.prefill(self.rng.integers(0, vocab, n)) for n in (200, 800, 2000, 5000, 8192, 14000)}

    def draw(self) -> tuple[PackedPass, int, int, int]:
        """(pass, view tokens scanned, branch rows, attention pairs)."""
        rng, views = self.rng, int(self.rng.integers(1, 9))
        lengths, states, ends = [], [], []
        for kept in rng.random(views) < 1 / 3:
            end = int(rng.choice(list(self.kept))) if kept else int(np.exp(rng.uniform(np.log(100), np.log(16000))))
            ends.append(end)
            lengths.append(0 if kept else end)
            states.append(self.kept[end] if kept else NO_STATE)
        count = rng.integers(1, 65, views)
        branch_lengths = rng.integers(10, 65, count.sum())
        branch_views = np.repeat(np.arange(views), count)
        rows = np.zeros(views, np.int64)
        np.add.at(rows, branch_views, branch_lengths)
        seen = sum(pairs(e - n, e, int(r)) for n, e, r in zip(lengths, ends, rows, strict=True))
        work = PackedPass(
            view_tokens=rng.integers(0, self.vocab, sum(lengths)), view_lengths=np.array(lengths),
            view_states=np.array(states), keep=np.zeros(views, np.bool_),
            branch_tokens=rng.integers(0, self.vocab, int(branch_lengths.sum())), branch_lengths=branch_lengths,
            branch_views=branch_views, label_ids=np.tile([32, 33, 34], len(branch_lengths)),
            label_counts=np.full(len(branch_lengths), 3),
        )  # fmt: skip
        return work, sum(lengths), int(rows.sum()), seen


def judge(name: str, samples: list[Sample], learnt: int) -> None:
    cost = PRIOR
    for _ in range(3):
        cost = fit(samples[:learnt], cost)
    measured = np.array([sample[3] for sample in samples[learnt:]])
    predicted = np.array([cost.seconds(*sample[:3]) for sample in samples[learnt:]])
    error = np.abs(predicted - measured)
    share, allowed = error / measured, np.maximum(0.05 * measured, 5e-4)
    cells = [1e3 * np.quantile(error, at) for at in (0.5, 0.99)] + [100 * np.quantile(share, at) for at in (0.5, 0.99)]
    within = 100 * (error <= allowed).mean()
    click.echo(f"| {name} | {' | '.join(f'{cell:.2f}' for cell in cells)} | {within:.1f} | {cost} |")


@click.command(help=__doc__)
@click.option("--passes", type=click.IntRange(50), default=500, show_default=True)
@click.option("--learnt", type=click.IntRange(20), default=100, show_default=True, help="Passes before, to fit on.")
@click.option("--seed", type=int, default=0, show_default=True)
def main(passes: int, learnt: int, seed: int) -> None:
    shape = CUDA_SHAPES["0.8B"]
    backend = CudaBackend(random_model(shape, dtype=torch.bfloat16, device="cuda"))
    source = Passes(backend, shape["vocab_size"], seed)
    samples: list[Sample] = []
    for _ in range(learnt + passes):
        work, view, rows, seen = source.draw()
        backend.score_pass(work)  # kernels are compiled and graphs recorded once a shape: not what is asked here
        samples.append((view, rows, seen, backend.score_pass(work).seconds))
    times = np.array([sample[3] for sample in samples]) * 1e3
    click.echo(f"{passes} passes after {learnt}: {times.min():.2f} to {times.max():.2f} ms")
    click.echo("| terms | p50 ms | p99 ms | p50 % | p99 % | within 5 % or 0.5 ms, % | fit |")
    click.echo("|---|---:|---:|---:|---:|---:|---|")
    judge("three", [(view, rows, 0, seconds) for view, rows, _, seconds in samples], learnt)
    judge("four", samples, learnt)


if __name__ == "__main__":
    main()
