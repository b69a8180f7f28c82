"""How well few coefficients predict the time of a pass on one CUDA device.

Random passes (1 to 8 views of 100 to 16,000 tokens, 1 to 64 branches of 10 to 64 each, a third of the views kept) are
timed; the node's model is fitted on the first ones and judged on the rest, with three terms (fixed, view tokens, branch
rows) and with a fourth (attention pairs). What matters is the error in ms and in share of the pass.

For comparison: the same model as a node lives with it, learning from every pass; plain fits over all passes with more
terms (the longest view, whose walk is serial; pairs of views and of branches apart), with rows as buckets round them
up; and how far a fifth of the passes are from themselves when they are run again. `--rows` keeps every pass with its
shape, so that other terms can be tried without a device:

    python bench/cost_gpu.py --passes 500 --rows rows.json
    python bench/cost_gpu.py --read rows.json
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from mainspring.core.cost import Cost, CostFit, Sample, fit, nnls
from mainspring.core.nouns import pairs
from mainspring.ops.gated_delta.segments import SEGMENT_ROWS

PRIOR = Cost(1e-3, 2e-6, 3e-6)
AGAIN = 5
"""One pass of so many is timed twice."""
Row = dict[str, Any]


class Passes:
    """Random passes on one backend, with kept views of a few lengths to fork."""

    def __init__(self, backend: Any, vocab: int, seed: int) -> None:
        self.backend, self.vocab = backend, vocab
        self.rng = np.random.default_rng(seed)
        self.kept = {n: backend.prefill(self.rng.integers(0, vocab, n)) for n in (200, 800, 2000, 5000, 8192, 14000)}

    def draw(self) -> tuple[Any, Row]:
        """(pass, its shape: of each view its end, tokens scanned and branches' lengths)."""
        from mainspring.backend.protocol import NO_STATE, PackedPass

        rng, views = self.rng, int(self.rng.integers(1, 9))
        lengths, states, ends = [], [], []
        for kept in rng.random(views) < 1 / 3:
            end = int(rng.choice(list(self.kept))) if kept else int(np.exp(rng.uniform(np.log(100), np.log(16000))))
            ends.append(end)
            lengths.append(0 if kept else end)
            states.append(self.kept[end] if kept else NO_STATE)
        count = rng.integers(1, 65, views)
        branch_lengths = rng.integers(10, 65, count.sum())
        work = PackedPass(
            view_tokens=rng.integers(0, self.vocab, sum(lengths)), view_lengths=np.array(lengths),
            view_states=np.array(states), keep=np.zeros(views, np.bool_),
            branch_tokens=rng.integers(0, self.vocab, int(branch_lengths.sum())), branch_lengths=branch_lengths,
            branch_views=np.repeat(np.arange(views), count), label_ids=np.tile([32, 33, 34], len(branch_lengths)),
            label_counts=np.full(len(branch_lengths), 3),
        )  # fmt: skip
        each = np.split(branch_lengths, np.cumsum(count)[:-1])
        return work, {"ends": ends, "lengths": lengths, "branches": [part.tolist() for part in each]}


def sample(row: Row) -> Sample:
    """What the node's model sees."""
    rows = [sum(part) for part in row["branches"]]
    seen = sum(pairs(e - n, e, r) for n, e, r in zip(row["lengths"], row["ends"], rows, strict=True))
    return sum(row["lengths"]), sum(rows), seen, row["seconds"]


def judge(name: str, predicted: NDArray[np.float64], measured: NDArray[np.float64], note: object) -> None:
    error = np.abs(predicted - measured)
    share, allowed = error / measured, np.maximum(0.05 * measured, 5e-4)
    cells = [1e3 * np.quantile(error, at) for at in (0.5, 0.99)] + [100 * np.quantile(share, at) for at in (0.5, 0.99)]
    within = 100 * (error <= allowed).mean()
    worst = np.quantile(error / allowed, 0.99)
    click.echo(f"| {name} | {' | '.join(f'{cell:.2f}' for cell in cells)} | {within:.1f} | {worst:.2f} | {note} |")


def node_model(name: str, samples: list[Sample], learnt: int) -> None:
    cost = PRIOR
    for _ in range(3):
        cost = fit(samples[:learnt], cost)
    measured = np.array([s[3] for s in samples[learnt:]])
    judge(name, np.array([cost.seconds(*s[:3]) for s in samples[learnt:]]), measured, cost)


def live_model(name: str, samples: list[Sample], learnt: int) -> None:
    model, predicted = CostFit(PRIOR, tuple(samples[:16])), []
    for view, rows, seen, seconds in samples:
        predicted.append(model.cost.seconds(view, rows, seen))
        model.observe(view, rows, seen, seconds)
    measured = np.array([s[3] for s in samples[learnt:]])
    judge(name, np.array(predicted[learnt:]), measured, f"{model.suspects} suspects")


def plain_fit(name: str, rows: list[Row], terms: Callable[[Row], Iterable[float]]) -> None:
    design = np.array([[1.0, *terms(row)] for row in rows])
    measured = np.array([row["seconds"] for row in rows])
    scale = design.max(axis=0) / measured.mean()
    found, _ = nnls(design / measured[:, None] / scale, np.zeros(design.shape[1]), pull=0.0)
    note = ", ".join(f"{c:.3g}" for c in found / scale)
    judge(f"all passes: {name}", design @ (found / scale), measured, note)


def view_pairs(row: Row) -> float:
    return sum(n * (2 * e - n) / 2 for n, e in zip(row["lengths"], row["ends"], strict=True))


def branch_pairs(row: Row) -> float:
    return float(sum(e * sum(part) for e, part in zip(row["ends"], row["branches"], strict=True)))


def bucket(rows: int) -> int:
    from mainspring.backend.cuda.buckets import round_rows

    return round_rows(rows) if rows else 0


def report(rows: list[Row], learnt: int) -> None:
    samples = [sample(row) for row in rows]
    times = np.array([s[3] for s in samples]) * 1e3
    click.echo(f"{len(rows) - learnt} passes after {learnt}: {times.min():.2f} to {times.max():.2f} ms")
    click.echo("| terms | p50 ms | p99 ms | p50 % | p99 % | within 5 % or 0.5 ms, % | p99 of what is allowed | fit |")
    click.echo("|---|---:|---:|---:|---:|---:|---:|---|")
    node_model("three", [(view, asked, 0, seconds) for view, asked, _, seconds in samples], learnt)
    node_model("four", samples, learnt)
    live_model("as a node learns", samples, learnt)

    def four(row: Row) -> tuple[float, ...]:
        return tuple(float(x) for x in sample(row)[:3])

    def recorded(row: Row) -> tuple[float, ...]:
        view, asked, seen = four(row)
        if row["recorded"]:
            view, asked = bucket(int(view)), bucket(int(asked))
        return view, asked, seen

    plain_fit("four", rows, four)
    plain_fit("four, longest view", rows, lambda row: (*four(row), max(row["lengths"])))
    plain_fit("four, longest view, rows of buckets", rows, lambda row: (*recorded(row), max(row["lengths"])))
    plain_fit(
        "view and branch pairs apart, longest view", rows,
        lambda row: (*four(row)[:2], view_pairs(row), branch_pairs(row), max(row["lengths"])),
    )  # fmt: skip
    for name, chosen in (("recorded", True), ("launched", False)):
        some = [row for row in rows if row["recorded"] == chosen]
        if len(some) > 10:
            plain_fit(
                f"four, longest view, {len(some)} {name} alone", some, lambda row: (*four(row), max(row["lengths"]))
            )
    twice = [row for row in rows if "again" in row]
    if twice:
        first, second = (np.array([row[key] for row in twice]) for key in ("seconds", "again"))
        judge(f"the same {len(twice)} passes again", second, first, "")


def timed(passes: int, seed: int, segment_rows: int) -> list[Row]:
    import torch

    from mainspring.backend.cuda.backend import CudaBackend
    from random_model import random_model
    from shapes import CUDA_SHAPES

    shape = CUDA_SHAPES["0.8B"]
    model = random_model(shape, dtype=torch.bfloat16, device="cuda")
    backend = CudaBackend(model, segment_rows=segment_rows)
    backend.warm()
    source = Passes(backend, shape["vocab_size"], seed)
    rows: list[Row] = []
    for number in range(passes):
        work, row = source.draw()
        row["recorded"] = work.rows <= backend._runner.graph_rows
        # Kernels are compiled and graphs recorded once a shape, the second time it comes: not what is asked here.
        row["first"] = backend.score_pass(work).seconds
        if row["recorded"]:
            backend.score_pass(work)
        row["seconds"] = backend.score_pass(work).seconds
        if number % AGAIN == 0:
            row["again"] = backend.score_pass(work).seconds
        rows.append(row)
    return rows


@click.command(help=__doc__)
@click.option("--passes", type=click.IntRange(50), default=500, show_default=True)
@click.option("--learnt", type=click.IntRange(20), default=100, show_default=True, help="Passes before, to fit on.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--segment-rows", type=click.IntRange(0), default=SEGMENT_ROWS, show_default=True, help="In the scan.")
@click.option("--rows", "keep", type=click.Path(path_type=Path, dir_okay=False), help="Keep every pass in this file.")
@click.option("--read", type=click.Path(path_type=Path, exists=True), help="Judge the passes kept there instead.")
def main(passes: int, learnt: int, seed: int, segment_rows: int, keep: Path | None, read: Path | None) -> None:
    rows = json.loads(read.read_text("utf-8")) if read else timed(passes + learnt, seed, segment_rows)
    if keep is not None:
        keep.write_text(json.dumps(rows, separators=(",", ":")), "utf-8")
    report(rows, learnt)


if __name__ == "__main__":
    main()
