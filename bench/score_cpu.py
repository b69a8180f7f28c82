"""A scoring pass on the CPU: the view alone, the view with its branches, and the branches on a kept view.

With V view and B branch rows the products alone predict (V + B) / V for the second against the first (1.12 at 2,000 and
8 x 30) and B / V for the third (0.12).
"""

import click
import numpy as np
import torch

from mainspring.backend.heap import keep_freed_memory
from mainspring.backend.torch_cpu import TorchBackend
from mainspring.bench import Arm, Options, measure
from mainspring.bench.cli import Publish, shared_options
from mainspring.engine import Branch, Engine, Work
from mainspring.model.config import parse_config
from mainspring.model.hybrid import Hybrid
from mainspring.model.saving import initialise
from shapes import SMALL_HYBRID


@click.command(help=__doc__)
@click.option("--view", type=click.IntRange(1), default=2000, show_default=True)
@click.option("--branches", type=click.IntRange(1), default=8, show_default=True)
@click.option("--branch-tokens", type=click.IntRange(1), default=30, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
@shared_options
def main(options: Options, publish: Publish, view: int, branches: int, branch_tokens: int, threads: int) -> None:
    torch.set_num_threads(threads)
    keep_freed_memory()
    model = initialise(Hybrid(parse_config(SMALL_HYBRID)), seed=0).eval().requires_grad_(False)
    backend = TorchBackend(model)
    tokens = np.random.default_rng(0).integers(0, SMALL_HYBRID["vocab_size"], view + branches * branch_tokens)
    labels = np.array([32, 33, 34], np.int64)
    questions = tuple(Branch(part, labels) for part in np.split(tokens[view:], branches))

    def arm(name: str, engine: Engine, work: Work) -> Arm:
        def run() -> float:
            engine.score([work])
            return 1

        return Arm(name, run)

    uncached, cached = Engine(backend, cache_bytes=0), Engine(backend, cache_bytes=2**30)
    kept = Work(tokens[:view], questions, b"view")
    cached.score([kept])
    arms = [
        arm("view alone", uncached, Work(tokens[:view], ())),
        arm(f"view + {branches} x {branch_tokens}", uncached, Work(tokens[:view], questions)),
        arm(f"kept view, {branches} x {branch_tokens}", cached, kept),
    ]
    publish(measure(arms, options, title=f"Scoring pass, view of {view}, 53.8M shape", unit="passes"))


if __name__ == "__main__":
    main()
