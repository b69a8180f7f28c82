"""Scoring passes on one CUDA device, in bf16 with random weights: token ids on the host to label logits on the host.

Every row is one pass, timed from an idle device to logits in numpy, short ones several after another, as a node runs
them; what a rest before a pass costs is `rest_gpu.py`'s. Beside it, where the machine has them: a two-phase pass on
flash-linear-attention's kernels (`peers.two_phase`), and transformers with flash-linear-attention on the views alone.
"Ceiling" is the time of all operations at the card's peak (`budget`), and below each row stands how the device spent
its time. A row or a peer that fails is said so and the others go on; the script then ends with an error.

    python bench/score_gpu.py --rounds 5 --out results

A pass comes again and again here, so that what follows from its lengths is copied from the second time on, as in a
node where a kept view is asked again; `--unseen` forgets it before each pass, as for lengths that never came before.

Before the first row everything built so far is taken out of the collector's reach: the harness collects garbage before
each sample, and a third of a second over the peers' modules let the card's clocks fall before every one.
"""

import gc
import importlib.util
import traceback
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import click
import numpy as np
import torch

from budget import Pass, ceiling_s
from mainspring.backend.cuda import lengths
from mainspring.backend.cuda.backend import CudaBackend
from mainspring.backend.protocol import NO_STATE, PackedPass
from mainspring.bench import Arm, Options, measure
from mainspring.bench.cli import Publish, shared_options
from mainspring.bench.lock import LockHeldError
from mainspring.bench.stats import ArmStats
from mainspring.model.config import parse_config
from mainspring.ops.gated_delta.segments import SEGMENT_ROWS
from random_model import random_model
from shapes import CUDA_SHAPES

CASES = {  # (shape, pass, what must hold and the aim: k request tokens/s, or ms where the name says so)
    "8 x 8192": ("0.8B", Pass(8, 8192, 8), "340k / 450k tok/s"),
    "1 x 8192": ("0.8B", Pass(1, 8192, 8), "28 / 18 ms"),
    "1 x 500": ("0.8B", Pass(1, 500, 8), "3.5 / 1.8 ms"),
    "8 x 2048": ("0.8B", Pass(8, 2048, 8), "340k / 450k tok/s"),
    "1 x 18000": ("0.8B", Pass(1, 18000, 256), "120 / 80 ms"),
    "8192 cached": ("0.8B", Pass(1, 8192, 8, cached=True), "2.5 / 1.2 ms"),
    "4B 2 x 8192": ("4B", Pass(2, 8192, 8), "65k / 82k tok/s"),
}
PASSES = ((4_096, 10), (16_384, 4))
"""Passes in a sample, one after another, of up to so many rows; larger ones are one."""
GROUPS = (  # kernel names to what they are, first match
    ("_prepare", "scan: prepare"), ("_carry", "scan: carry"), ("_walk", "scan: walk"), ("_fork", "fork"),
    ("_attend", "attention"), ("_join", "attention: join"), ("_delta_inputs", "conv, norms, gates"),
    ("_inputs", "queries, keys"),
    ("_queries", "queries"), ("_gated", "gated norm"), ("_add_norm", "residual, norm"), ("_swiglu", "swiglu"),
    ("_label", "labels"), ("nvjet", "products"), ("gemm", "products"), ("cutlass", "products"),
    ("splitK", "products"), ("Memcpy", "copies"),
)  # fmt: skip


def make_pass(p: Pass, vocab: int, seed: int = 0, states: list[int] | None = None) -> PackedPass:
    rng = np.random.default_rng(seed)
    B = p.requests * p.branches
    return PackedPass(
        view_tokens=rng.integers(0, vocab, p.view_rows),
        view_lengths=np.full(p.requests, 0 if p.cached else p.view),
        view_states=np.array(states or [NO_STATE] * p.requests),
        keep=np.zeros(p.requests, np.bool_),
        branch_tokens=rng.integers(0, vocab, p.branch_rows),
        branch_lengths=np.full(B, p.rows),
        branch_views=np.repeat(np.arange(p.requests), p.branches),
        label_ids=np.tile([32, 33, 34], B),
        label_counts=np.full(B, 3),
    )


class Side:
    """One shape's weights and the arms that run on them."""

    def __init__(self, shape: str, peers: bool, segment_rows: int, unseen: bool) -> None:
        self.config = parse_config(CUDA_SHAPES[shape])
        self.shape, self.peers, self.unseen = shape, peers, unseen
        self.failed: list[str] = []
        has_fla = importlib.util.find_spec("fla") is not None
        self.two_phase = self._peer("two-phase", self._two_phase) if peers and has_fla else None
        self.backend = CudaBackend(self._model(), segment_rows=segment_rows)
        self.backend.warm()
        self.transformers = self._peer("transformers", self._transformers) if peers and has_fla else None
        gc.collect()
        gc.freeze()

    def _peer(self, name: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except Exception:
            traceback.print_exc()
            self.failed.append(name)
            return None

    def _two_phase(self) -> Any:
        from peers.two_phase import TwoPhase

        return TwoPhase(self._model())

    def _model(self) -> Any:
        return random_model(CUDA_SHAPES[self.shape], dtype=torch.bfloat16, device="cuda")

    def _transformers(self) -> Any:
        import transformers

        if not hasattr(transformers, "Qwen3_5ForCausalLM"):
            return None
        names = {k: v for k, v in CUDA_SHAPES[self.shape].items() if k != "model_type"}
        with torch.device("cuda"):
            config = transformers.Qwen3_5TextConfig(**names, dtype=torch.bfloat16)
            return transformers.Qwen3_5ForCausalLM(config).to(torch.bfloat16).eval()

    def work(self, p: Pass) -> PackedPass:
        states = [self.backend.prefill(np.arange(p.view) % 1000) for _ in range(p.requests)] if p.cached else None
        return make_pass(p, self.config.vocab_size, states=states)

    def arms(self, p: Pass, work: PackedPass) -> list[Arm]:
        def arm(name: str, run: Callable[[], object], tokens: int, passes: int = 1) -> Arm:
            def counted() -> float:
                for _ in range(passes):
                    run()
                return tokens * passes

            return Arm(name, counted, sync=torch.cuda.synchronize)

        passes = next((count for rows, count in PASSES if p.view_rows + p.branch_rows <= rows), 1)
        arms = [arm("mainspring", lambda: self.score(work), p.tokens, passes)]
        if self.two_phase is not None and not p.cached:
            arms.append(arm("two-phase", lambda: self.two_phase.score(work), p.tokens, min(passes, 4)))
        if self.transformers is not None and not p.cached and p.view == 8192:
            ids = torch.from_numpy(work.view_tokens).cuda().view(p.requests, p.view)
            arms.append(arm("transformers, views", lambda: self._forward(ids), p.view_rows, passes))
        return arms

    def score(self, work: PackedPass) -> object:
        if self.unseen:
            lengths._kept.cache_clear()
        return self.backend.score_pass(work)

    @torch.inference_mode()
    def _forward(self, ids: torch.Tensor) -> None:
        self.transformers.model(input_ids=ids, use_cache=False)


def shares(run: Callable[[], object]) -> tuple[float, dict[str, float]]:
    """Device milliseconds of one run, and of each kind of kernel."""
    from torch.profiler import ProfilerActivity, profile

    run()
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        run()
        torch.cuda.synchronize()
    kinds: dict[str, float] = defaultdict(float)
    for event in record.key_averages():
        kind = next((to for part, to in GROUPS if part in event.key), "other: " + event.key[:40])
        kinds[kind] += event.self_device_time_total / 1e3
    return sum(kinds.values()), dict(sorted(((k, ms) for k, ms in kinds.items() if ms >= 0.005), key=lambda x: -x[1]))


def row(name: str, p: Pass, target: str, arm: ArmStats, ceiling: float, busy: float) -> str:
    ms = [p.tokens / rate * 1e3 if arm.arm != "transformers, views" else p.view_rows / rate * 1e3
          for rate in (arm.maximum, arm.median, arm.minimum)]  # fmt: skip
    device = f"{busy:.2f}" if busy else ""
    return (
        f"| {name} | {arm.arm} | {ms[1]:.2f} | {ms[0]:.2f} to {ms[2]:.2f} | {arm.rate / 1e3:.0f}k | {device} "
        f"| {100 * ceiling / ms[1] * 1e3:.0f} % | {target} |"
    )


def run_case(name: str, side: Side, options: Options, publish: Publish) -> list[str]:
    """Lines of one pass: its arms, then its profile."""
    _, p, target = CASES[name]
    work = side.work(p)
    for _ in range(3):  # the second time a large pass comes it is recorded
        side.backend.score_pass(work)
    report = measure(
        side.arms(p, work), options, title=f"{side.shape}, {p.name}", unit="tokens", device=side.backend.device
    )
    publish(report)
    torch.cuda.reset_peak_memory_stats()
    busy, kinds = shares(lambda: side.backend.score_pass(work))
    peak = torch.cuda.max_memory_allocated() / 2**30
    ceiling = ceiling_s(side.config, p)
    lines = [row(name, p, target, arm, ceiling, busy if arm.arm == "mainspring" else 0.0) for arm in report.arms]
    parts = ", ".join(f"{kind} {ms:.2f}" for kind, ms in kinds.items())
    return [*lines, f"{name}: {busy:.2f} ms on the device, peak {peak:.1f} GiB; {parts}"]


@click.command(help=__doc__)
@click.option("--case", "names", multiple=True, type=click.Choice(list(CASES)), help="Rows to run. [all]")
@click.option("--peers/--no-peers", default=True, show_default=True)
@click.option("--segment-rows", type=click.IntRange(0), default=SEGMENT_ROWS, show_default=True, help="In the scan.")
@click.option("--unseen", is_flag=True, help="As if no pass of these lengths had come before.")
@shared_options
def main(
    options: Options, publish: Publish, names: tuple[str, ...], peers: bool, segment_rows: int, unseen: bool
) -> None:  # fmt: skip
    found: list[str] = []
    failed: list[str] = []
    side: Side | None = None
    for name, (shape, _, _) in CASES.items():
        if names and name not in names:
            continue
        try:
            if side is None or side.shape != shape:
                side = None
                gc.unfreeze()
                gc.collect()
                torch.cuda.empty_cache()
                side = Side(shape, peers and shape == "0.8B", segment_rows, unseen)
                failed += side.failed
            lines = run_case(name, side, options, publish)
        except LockHeldError:
            raise
        except Exception:
            traceback.print_exc()
            failed.append(name)
            continue
        found += lines
        click.echo("\n".join(lines))
    gc.unfreeze()
    head = "| pass | arm | median ms | least to most | request tokens/s | device ms | of the ceiling | must / aim |"
    rows, notes = ([line for line in found if line.startswith("|") == table] for table in (True, False))
    click.echo("\n".join(["", head, "|---|---|---:|---|---:|---:|---:|---|", *rows, "", *notes]))
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
