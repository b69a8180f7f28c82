"""Generation on the CPU beside llama.cpp (`xllamacpp`): the 0.8B shape, equal random weights, equal threads.

Each side has a process of its own and answers in turn. llama.cpp has the weights as a GGUF file that this script writes
(matrices in bf16 unless `--matrices` says otherwise), Mainspring the same values in fp32, as it loads bf16 checkpoints
on a CPU. Both take token ids, cache nothing, draft nothing, and take the likeliest token.

prefill   prompt tokens/s until the first token is there.
decode    tokens/s of a reply after 16 prompt tokens, these included in the time.

Floors at 2 threads: prefill 1.0 GFLOP a token for the body over what `bench/gemm.py` shows; decode the bytes of all
matrices a token, 1.5 GB in bf16 and 3.0 in fp32, over the memory's rate. Beside the figures it is said how many tokens
of a greedy reply agree: a wrong layout would have none.

    pip install --no-deps --target peer xllamacpp
    PYTHONPATH=src:peer python bench/llama_cpp.py --case prefill
"""

import multiprocessing
import os
import re
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
import torch

from mainspring.backend.generation import SlotLimits
from mainspring.backend.heap import keep_freed_memory
from mainspring.backend.torch_cpu import TorchBackend
from mainspring.bench import Arm, Options, measure
from mainspring.bench.cli import Publish, shared_options
from mainspring.engine.stream_records import StreamSpec
from mainspring.engine.streams import Streams
from peers.gguf import DTYPES, write_gguf
from random_model import random_model
from shapes import CUDA_SHAPES

SHAPE = CUDA_SHAPES["0.8B"]
SHORT = 16
Reply = Callable[[list[int], int], list[int]]
"""(prompt, how many tokens) -> tokens."""


@click.command(help=__doc__)
@click.option("--case", type=click.Choice(["prefill", "decode"]), default="prefill", show_default=True)
@click.option("--prompt", type=click.IntRange(SHORT), default=512, show_default=True, help="Prompt tokens.")
@click.option("--tokens", type=click.IntRange(2), default=32, show_default=True, help="Tokens of a reply.")
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
@click.option("--matrices", type=click.Choice(sorted(DTYPES)), default="bf16", show_default=True, help="llama.cpp's.")
@shared_options
def main(options: Options, publish: Publish, case: str, prompt: int, tokens: int, threads: int, matrices: str) -> None:
    if find_spec("xllamacpp") is None:
        raise SystemExit("xllamacpp is not here: pip install --no-deps --target peer xllamacpp, PYTHONPATH=src:peer")
    ids = np.random.default_rng(0).integers(0, 200_000, prompt).tolist()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_gguf(path, random_model(SHAPE, dtype=torch.bfloat16, device="cpu"), matrices=matrices)
        theirs, ours = Side(llama_cpp, path, threads), Side(mainspring, path, threads)
        agree(theirs.reply(ids[:SHORT], 8), ours.reply(ids[:SHORT], 8))
        asked, count, units = (ids, 1, prompt) if case == "prefill" else (ids[:SHORT], tokens, tokens)

        def run(side: Side) -> Callable[[], float]:
            def once() -> float:
                got = len(side.reply(asked, count))
                if got != count:
                    raise SystemExit(f"{got} tokens came, {count} were asked for")
                return float(units)

            return once

        arms = [Arm(f"llama.cpp, {matrices}", run(theirs)), Arm("mainspring, fp32", run(ours))]
        what = f"prefill of {prompt} tokens" if case == "prefill" else f"{tokens} tokens after {SHORT}"
        title = f"0.8B shape, {what}, {threads} threads, xllamacpp {version('xllamacpp')}"
        publish(measure(arms, options, title=title, unit="tokens"))


def agree(theirs: list[int], ours: list[int]) -> None:
    same = next((i for i, pair in enumerate(zip(theirs, ours, strict=True)) if pair[0] != pair[1]), len(ours))
    click.echo(f"a greedy reply agrees in its first {same} of {len(ours)} tokens", err=True)


class Side:
    """A process that answers one prompt at a time."""

    def __init__(self, make: Callable[[Path, int], Reply], path: Path, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        context.Process(target=_serve, args=(theirs, make, path, threads), daemon=True).start()

    def reply(self, prompt: list[int], tokens: int) -> list[int]:
        self._pipe.send((prompt, tokens))
        found: list[int] = self._pipe.recv()
        return found


def _serve(pipe: Connection, make: Callable[[Path, int], Reply], path: Path, threads: int) -> None:
    reply = make(path, threads)
    with suppress(EOFError):  # the measuring process has ended
        while True:
            pipe.send(reply(*pipe.recv()))


def llama_cpp(path: Path, threads: int) -> Reply:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.verbosity = 8192, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)

    def reply(prompt: list[int], tokens: int) -> list[int]:
        asked = {"prompt": prompt, "n_predict": tokens, "cache_prompt": False, "temperature": 0.0, "ignore_eos": True}
        found = server.handle_completions(asked)
        return [int(each) for each in re.findall(r"t(\d+)", found["choices"][0]["text"])]

    return reply


def mainspring(_path: Path, threads: int) -> Reply:
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)
    keep_freed_memory()
    model = random_model(SHAPE, dtype=torch.bfloat16, device="cpu").float()
    streams = Streams(TorchBackend(model).generation(SlotLimits(1)), cache_bytes=0)

    def reply(prompt: list[int], tokens: int) -> list[int]:
        streams.open(StreamSpec(id="x", tokens=np.asarray(prompt), max_tokens=tokens, drafter="none"))
        found: list[int] = []
        while streams.live:
            found += [token for each in streams.step(len(prompt)) for token in each.tokens]
        return found

    return reply


if __name__ == "__main__":
    main()
