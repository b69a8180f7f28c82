"""Prefill on the CPU: hidden states of a prompt, no head rows, against transformers on the same weights' shapes.

Floor at 2,000 tokens: 57 MFLOP of products a token (28.6M body weights), 114 GFLOP, plus 8 of attention and scan,
over what `bench/gemm.py` shows this CPU does. Both sides: fp32, caches filled, the same number of threads.
"""

import logging
import os

import click
import torch

from mainspring.backend.heap import keep_freed_memory
from mainspring.backend.onednn_weights import pack_weights
from mainspring.bench import Arm, Options, measure
from mainspring.bench.cli import Publish, shared_options
from mainspring.model.config import parse_config
from mainspring.model.hybrid import Hybrid
from mainspring.model.saving import initialise
from shapes import SMALL_HYBRID

os.environ["HF_HUB_OFFLINE"] = "1"


@click.command(help=__doc__)
@click.option("--tokens", type=click.IntRange(1), default=2000, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
@shared_options
def main(options: Options, publish: Publish, tokens: int, threads: int) -> None:
    torch.set_num_threads(threads)
    keep_freed_memory()
    prompt = torch.randint(0, SMALL_HYBRID["vocab_size"], (tokens,), generator=torch.Generator().manual_seed(0))
    arms = [_transformers(prompt), _mainspring(prompt)]
    publish(measure(arms, options, title=f"Prefill of {tokens} tokens, 53.8M shape", unit="tokens"))


def _transformers(prompt: torch.Tensor) -> Arm:
    logging.disable(logging.WARNING)
    from transformers import Qwen3_5TextConfig
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextModel

    shape = {key: value for key, value in SMALL_HYBRID.items() if key != "model_type"}
    model = Qwen3_5TextModel(Qwen3_5TextConfig(**shape)).eval()

    @torch.inference_mode()
    def run() -> float:
        model(prompt[None], use_cache=True)
        return len(prompt)

    return Arm("transformers", run)


def _mainspring(prompt: torch.Tensor) -> Arm:
    model = initialise(Hybrid(parse_config(SMALL_HYBRID)), seed=0).eval().requires_grad_(False)
    pack_weights(model)

    @torch.inference_mode()
    def run() -> float:
        model.extend(prompt, [len(prompt)], [model.new_state(len(prompt))], update=True)
        return len(prompt)

    return Arm("mainspring", run)


if __name__ == "__main__":
    main()
