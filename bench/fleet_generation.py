"""The path that tokens take, without maths: client, router and a node of null slots, real processes and sockets.

A round of the null device takes `--round-ms` (0: none), so what is left is the house's own: agenda, engine, frames,
link and relay. One stream and several at once, tokens over wall time from submission to the last one. Beside it the
time to the first token of a prompt of `--prompt` tokens, which the null device scans in no time.

    python bench/fleet_generation.py --rounds 5
"""

import asyncio
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np

from fleet_cpu import VOCAB, Cell
from mainspring.bench import Arm, Options, measure
from mainspring.bench.cli import Publish, shared_options
from mainspring.hub import EMBEDDED, model_folder
from mainspring.wire import messages as m


class Streams:
    """Reads replies; `firsts` are the router's times to first token."""

    def __init__(self, cell: Cell, tokens: int, prompt: int) -> None:
        self.cell, self.tokens, self.prompt = cell, tokens, prompt
        self.firsts: list[float] = []

    async def one(self) -> int:
        self.cell.serial += 1
        ids = np.random.default_rng(self.cell.serial).integers(0, VOCAB, self.prompt)
        submit = m.Submit(
            request=f"g{self.cell.serial}", model="model", slo="batch", view_tokens=ids.astype("<u4").tobytes(),
            max_tokens=self.tokens, sampling=m.Sampling(temperature=0.0, ignore_eos=True, drafter="none"),
        )  # fmt: skip
        count = 0
        async for message in self.cell.fleet.generate(submit):
            if isinstance(message, m.Rounds):
                count += len(message.tokens) // 4
            else:
                self.firsts.append(message.first_s)
        return count

    def arm(self, label: str, together: int) -> Arm:
        async def all_of_them() -> int:
            return sum(await asyncio.gather(*(self.one() for _ in range(together))))

        def run() -> float:
            count = self.cell.call(all_of_them())
            if count != together * self.tokens:
                raise SystemExit(f"{label}: {count} tokens came, {together * self.tokens} were asked for")
            return float(count)

        return Arm(label, run)


@click.command(help=__doc__)
@click.option("--tokens", type=click.IntRange(1), default=200, show_default=True, help="Of each reply.")
@click.option("--prompt", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--streams", type=click.IntRange(1, 256), default=32, show_default=True)
@click.option("--round-ms", type=click.FloatRange(0.0, 1000.0), default=0.001, show_default=True)
@shared_options
def main(options: Options, publish: Publish, tokens: int, prompt: int, streams: int, round_ms: float) -> None:
    with TemporaryDirectory() as name:
        root = Path(name)
        shutil.copytree(model_folder(EMBEDDED), root / "model")
        settings = root / "null.toml"
        settings.write_text(
            f'[node]\nprobe_s = 1.0\nstate = ""\ndevice = "null"\nslots = {streams}\nnull_cost = [1e-5, 0.0, 0.0]\n'
            f"null_round = [{round_ms / 1e3}, 0.0, 0.0]\n"
        )
        with Cell(root, root / "model", {"ant": ["--config", str(settings)]}).up() as cell:
            asked = Streams(cell, tokens, prompt)
            title = f"replies of {tokens} tokens after {prompt}, a null device's round of {round_ms:g} ms"
            counts = dict.fromkeys((1, max(1, streams // 4), streams))
            report = measure([asked.arm(f"{count} at once", count) for count in counts], options, title=title,
                             unit="tokens")  # fmt: skip
            firsts = 1e3 * np.sort(asked.firsts)
            click.echo(
                f"first token, {len(firsts)} streams: min {firsts[0]:.1f}, median {np.median(firsts):.1f}, "
                f"max {firsts[-1]:.1f} ms", err=True,
            )  # fmt: skip
    publish(report)


if __name__ == "__main__":
    main()
