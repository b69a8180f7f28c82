"""Time to the first token through HTTP: random weights of a released shape behind `mainspring serve`, on a device.

The folder is written once: bf16 weights, the embedded writer's tokenizer. A node reads and chooses no ids beyond its
tokenizer's vocabulary, so the head has as many rows as that (22,000 of 248,320: a first token reads 0.46 GB less at
0.8B, 0.1 ms of an H200). Prompts are random ids of plain tokens. Kinds take turns, each turn with a new prompt:

cold        a prompt that was never there
repeat      exactly it again
follow-up   it, its reply's text and `--new` more tokens

Milliseconds are from the request's first byte on an open connection to the first event with a token. Beside them, of
the same requests: until the headers (read, tokenised, taken by the router), what the gateway says it waited and worked
for, its own time from submission to the first token, and how many prompt tokens the server found kept.

    python bench/first_http.py --folder /tmp/random-0.8B --device cuda
    python bench/first_http.py --folder /tmp/random-4B --shape 4B --device cuda --prefix-mib 2048
    python bench/first_http.py --folder /tmp/random-tiny --shape tiny --device cpu --prompt 512
"""

import json
import shutil
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np

from first_http_client import Asked, Deadline, Server, ask, command, tokens_of_text
from mainspring.bench import environment
from mainspring.bench.report import table
from mainspring.hub import WRITER, model_folder
from mainspring.text.tokenizer import Tokenizer
from shapes import CUDA_SHAPES, TINY

SHAPES = {**CUDA_SHAPES, "tiny": TINY}
KINDS = ("cold", "repeat", "follow-up")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
SHAPE_FILE = "shape.json"


def write_folder(folder: Path, shape: dict[str, Any]) -> None:
    """A checkpoint of random weights, unless it is there. SystemExit where the folder holds something else."""
    if folder.exists():
        kept = folder / SHAPE_FILE
        if not kept.is_file() or json.loads(kept.read_text()) != shape:
            raise SystemExit(f"{folder} is no folder of this shape that this script wrote")
        return
    import torch

    from mainspring.model.saving import save_hybrid
    from random_model import random_model

    aside = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(aside, ignore_errors=True)
    save_hybrid(random_model(shape, dtype=torch.bfloat16, device="cpu"), aside)
    source = model_folder(WRITER)
    for name in TOKENIZER_FILES:
        shutil.copyfile(source / name, aside / name)
    ends = json.loads((source / "config.json").read_text())["eos_token_id"]
    config = json.loads((aside / "config.json").read_text()) | {"eos_token_id": ends, "dtype": "bfloat16"}
    (aside / "config.json").write_text(json.dumps(config, indent=2))
    (aside / SHAPE_FILE).write_text(json.dumps(shape, indent=2))
    aside.rename(folder)


class Prompts:
    """Random ids of `tokenizer`'s plain tokens: a control token would end a turn, and be one more mark to keep."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, seed: int) -> None:
        size = min(tokenizer.vocab_size, vocab_size)
        self._plain = np.setdiff1d(np.arange(size), list(tokenizer.control.values()))
        self._chance = np.random.default_rng(seed)

    def new(self, count: int) -> list[int]:
        ids: list[int] = self._chance.choice(self._plain, count).tolist()
        return ids


def take_turns(
    server: Server, prompts: Prompts, *, tokens: int, new: int, turns: int, deadline: Deadline
) -> list[list[Asked]]:
    """One row a turn, one column a kind."""
    rows = []
    for number in range(turns):
        prompt = prompts.new(tokens)
        cold = ask(server, prompt, deadline)
        repeat = ask(server, prompt, deadline)
        later = [*prompt, *tokens_of_text(server, cold.text, deadline), *prompts.new(new)]
        rows.append([cold, repeat, ask(server, later, deadline)])
        click.echo(f"turn {number + 1} of {turns}: " + ", ".join(f"{each.first_ms:.1f}" for each in rows[-1]), err=True)
    return rows


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def report(rows: list[list[Asked]]) -> str:
    """Medians of each kind (least to most)."""
    head = ("kind", "first token, ms", "headers, ms", "gateway: wait, ms", "its text, ms", "submitted to first, ms",
            "prompt tokens", "of them kept", "n")  # fmt: skip
    lines = []
    for kind, asked in zip(KINDS, zip(*rows, strict=True), strict=True):
        found = [
            spread([getattr(each, name) for each in asked])
            for name in ("first_ms", "headers_ms", "wait_ms", "text_ms", "fleet_ms")
        ]
        counts = ["/".join(map(str, sorted({getattr(each, name) for each in asked})))
                  for name in ("prompt_tokens", "cached_tokens")]  # fmt: skip
        lines.append((kind, *found, *counts, str(len(asked))))
    return table(head, lines)


def unkept(rows: list[list[Asked]]) -> list[str]:
    """Kinds of which a prompt was read from its beginning that should not have been."""
    return [
        kind
        for kind, asked in zip(KINDS, zip(*rows, strict=True), strict=True)
        if kind != "cold" and not all(each.cached_tokens for each in asked)
    ]


@click.command(help=__doc__)
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), required=True, help="Written if missing.")
@click.option("--shape", type=click.Choice(list(SHAPES)), default="0.8B", show_default=True)
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True)
@click.option("--slots", type=click.IntRange(1, 1024), default=4, show_default=True)
@click.option("--prompt", "tokens", type=click.IntRange(1), default=8192, show_default=True, help="Tokens.")
@click.option("--new", type=click.IntRange(1), default=50, show_default=True, help="Tokens of a follow-up's new turn.")
@click.option("--turns", type=click.IntRange(1), default=20, show_default=True, help="Of each kind once.")
@click.option("--warmups", type=click.IntRange(0), default=4, show_default=True, help="Turns before, not reported.")
@click.option("--prefix-mib", type=click.IntRange(0), help="The node's memory for prompts.  [the product's]")
@click.option("--limit-s", type=click.FloatRange(1.0), default=480.0, show_default=True, help="For all of it.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the prompts; another one for another run.")
def main(
    folder: Path, shape: str, device: str, slots: int, tokens: int, new: int, turns: int, warmups: int,
    prefix_mib: int | None, limit_s: float, seed: int,
) -> None:  # fmt: skip
    deadline = Deadline(limit_s)
    began_s = time.monotonic()
    write_folder(folder, SHAPES[shape])
    written_s = time.monotonic() - began_s
    where = environment.record()
    prompts = Prompts(Tokenizer.load(folder), SHAPES[shape]["vocab_size"], seed)
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory()))
        arguments = command(folder.resolve(), device, slots, prefix_mib, home / "fleet.toml")
        server = stack.enter_context(Server(arguments, home / "log", deadline))
        click.echo(f"folder {written_s:.1f} s, server ready after {server.ready_s:.1f} s", err=True)
        rows = take_turns(server, prompts, tokens=tokens, new=new, turns=warmups + turns, deadline=deadline)[warmups:]
    click.echo(f"### First token through HTTP, {shape} of random weights, {device}, {slots} slots\n")
    click.echo(report(rows) + "\n")
    click.echo(f"- {where.device}, {where.cores} cores; mainspring {where.package} ({where.commit}), {where.date}")
    click.echo(f"- `{where.command}`")
    if lost := unkept(rows):
        raise SystemExit(f"nothing was kept of some prompts ({', '.join(lost)}): more --prefix-mib?")


if __name__ == "__main__":
    main()
