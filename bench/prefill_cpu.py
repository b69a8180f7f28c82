"""Prefill on the CPU: hidden states of a prompt, no head rows, against transformers on the same shape.

Each side has a process of its own, as its users do: what one sets for the whole process (the C library's heap, say)
must not reach the other. `--shared` puts both into one. Both are fp32, fill their caches, and use the same number of
threads; a sample is three prompts.

Floor at 2,000 tokens: 57 MFLOP of products a token (28.6M body weights), 114 GFLOP, plus 8 of attention and scan,
over what `bench/gemm.py` shows this CPU does.
"""

import logging
import multiprocessing
import os
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

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

PROMPTS = 3
Prefill = Callable[[], None]


@click.command(help=__doc__)
@click.option("--tokens", type=click.IntRange(1), default=2000, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
@click.option("--shared", is_flag=True, help="Both sides in one process.")
@shared_options
def main(options: Options, publish: Publish, tokens: int, threads: int, shared: bool) -> None:
    sides = {"transformers": transformers_side, "mainspring": mainspring_side}
    make = _here if shared else _process
    arms = [Arm(name, make(side, tokens, threads)) for name, side in sides.items()]
    where = "one process" if shared else "a process each"
    publish(measure(arms, options, title=f"Prefill of {tokens} tokens, 53.8M shape, {where}", unit="tokens"))


def transformers_side(prompt: torch.Tensor) -> Prefill:
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.WARNING)
    from transformers import Qwen3_5TextConfig
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextModel

    shape = {key: value for key, value in SMALL_HYBRID.items() if key != "model_type"}
    model = Qwen3_5TextModel(Qwen3_5TextConfig(**shape)).eval()
    return lambda: model(prompt[None], use_cache=True)


def mainspring_side(prompt: torch.Tensor) -> Prefill:
    keep_freed_memory()
    model = initialise(Hybrid(parse_config(SMALL_HYBRID)), seed=0).eval().requires_grad_(False)
    pack_weights(model)
    return lambda: model.extend(prompt, [len(prompt)], [model.new_state(len(prompt))], update=True)


def _here(side: Callable[[torch.Tensor], Prefill], tokens: int, threads: int) -> Callable[[], float]:
    torch.set_num_threads(threads)
    prompt = torch.randint(0, SMALL_HYBRID["vocab_size"], (tokens,), generator=torch.Generator().manual_seed(0))
    prefill = side(prompt)

    @torch.inference_mode()
    def run() -> float:
        for _ in range(PROMPTS):
            prefill()
        return PROMPTS * tokens

    return run


def _process(side: Callable[[torch.Tensor], Prefill], tokens: int, threads: int) -> Callable[[], float]:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    worker = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(theirs, side, tokens, threads), daemon=True
    )
    worker.start()

    def run() -> float:
        ours.send(True)
        units: float = ours.recv()
        return units

    return run


def _serve(pipe: Connection, side: Callable[[torch.Tensor], Prefill], tokens: int, threads: int) -> None:
    run = _here(side, tokens, threads)
    with suppress(EOFError):  # the measuring process has ended
        while pipe.recv():
            pipe.send(run())


if __name__ == "__main__":
    main()
