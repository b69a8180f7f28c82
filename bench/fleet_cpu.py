"""A whole fleet on one machine's cores: a router and CPU nodes of one thread each, real processes and sockets.

Sharding: one request of many behaviours, on one node and over two; a view of its own each time, so that none is found
cached. With V view tokens, B rows and two equal nodes the products alone predict (V + B) / (V + B / 2) (1.87 at 500 and
300 x 24), less what router, client and both nodes take from each other on two cores. Mixed: one node as it is and one
`--throttle` times slower, kept full; shares of rows beside those that the measured cost curves predict.

    python bench/fleet_cpu.py --rounds 5
"""

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import click
import numpy as np

from mainspring.bench import Arm, Options, measure
from mainspring.bench.cli import Publish, shared_options
from mainspring.fleet.client import FleetClient
from mainspring.hub import EMBEDDED, model_folder
from mainspring.model.config import parse_config
from mainspring.model.hybrid import Hybrid
from mainspring.model.saving import initialise, save_hybrid
from mainspring.wire import messages as m
from mainspring.wire.pki_files import PkiFolder
from shapes import SMALL_HYBRID

START_S = 180.0
VOCAB = 256
T = TypeVar("T")


class Cell:
    """A router and its nodes; a client on a loop of its own thread, so that links live between samples."""

    def __init__(self, folder: Path, model: Path, nodes: dict[str, list[str]]) -> None:
        self.folder, self.model, self.nodes = folder, model, nodes
        self.pki = PkiFolder.create(folder / "pki", "bench", time.time())
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.serial = 0
        self.processes: list[subprocess.Popen[bytes]] = []
        self.fleet: FleetClient

    @contextmanager
    def up(self) -> Iterator["Cell"]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        router = self.pki.issue("router", "hill", time.time(), hosts=("127.0.0.1",))
        client = self.pki.issue("client", "bench", time.time())
        self.thread.start()
        try:
            self._spawn("router", "--listen", f"127.0.0.1:{port}", "--tls", str(router))
            settings = self.folder / "node.toml"  # measured at the start, so that nothing is measured beside the arms
            settings.write_text('[node]\nprobe_s = 20.0\nprobe_pass_s = 0.3\nstate = ""\n')
            for name, extra in self.nodes.items():
                folder = self.pki.issue("node", name, time.time())
                self._spawn("node", "--join", f"127.0.0.1:{port}", "--tls", str(folder), "--model", str(self.model),
                            "--threads", "1", "--config", str(settings), *extra)  # fmt: skip
            self.fleet = FleetClient.of(client, "127.0.0.1", port, connect_s=START_S)
            self.call(self.fleet.__aenter__())
            try:
                self.call(self._settled())
                yield self
            finally:
                self.call(self.fleet.__aexit__())
        finally:
            for process in self.processes:
                process.send_signal(signal.SIGTERM)
            for process in self.processes:
                process.wait(60)
            self.loop.call_soon_threadsafe(self.loop.stop)

    def call(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self.loop).result()

    def score(self, submit: m.Submit) -> m.Result:
        return self.call(self.fleet.score(submit))

    def scanned(self, result: m.Result, rows: int) -> int:
        """View tokens that the passes of the last request scanned."""
        passes = self.call(self.fleet.status(result.passes)).passes
        return sum(each.tokens for each in passes) - rows

    async def _settled(self) -> None:
        """All joined, with constants of a whole probe."""
        async with asyncio.timeout(START_S):
            while True:
                nodes = (await self.fleet.status()).nodes
                ready = [node for node in nodes if node.state == "ready" and not node.provisional]
                if len(ready) == len(self.nodes):
                    return
                await asyncio.sleep(0.5)

    def _spawn(self, *arguments: str) -> None:
        with (self.folder / "log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(  # noqa: S603 - ours
                    [sys.executable, "-m", "mainspring", *arguments], stdout=log, stderr=log, cwd=self.folder
                )
            )


def request(serial: int, view: int, branches: int, rows: int, key: str = "") -> m.Submit:
    rng = np.random.default_rng(serial)
    count = np.full(branches, 3, "<u4").tobytes()
    return m.Submit(
        request=f"r{serial}", model="model", slo="batch", view_key=key,
        view_tokens=rng.integers(0, VOCAB, view).astype("<u4").tobytes(),
        branch_lengths=np.full(branches, rows, "<u4").tobytes(),
        branch_tokens=rng.integers(0, VOCAB, branches * rows).astype("<u4").tobytes(),
        label_counts=count, label_ids=np.tile(np.array([32, 33, 34], "<u4"), branches).tobytes(),
    )  # fmt: skip


def write_model(folder: Path, small: bool) -> None:
    """The embedded scorer, or 53.8M random parameters with its tokenizer."""
    shutil.copytree(model_folder(EMBEDDED), folder)
    if small:
        save_hybrid(initialise(Hybrid(parse_config(SMALL_HYBRID)), seed=0), folder)


@click.command(help=__doc__)
@click.option("--view", type=click.IntRange(1), default=500, show_default=True)
@click.option("--branches", type=click.IntRange(1), default=300, show_default=True)
@click.option("--branch-tokens", type=click.IntRange(1), default=24, show_default=True)
@click.option("--throttle", type=click.FloatRange(1.0), default=3.0, show_default=True)
@click.option("--small/--embedded", default=True, show_default=True, help="53.8M random parameters.")
@click.option("--mixed-s", type=click.FloatRange(0.0), default=20.0, show_default=True, help="0: not measured.")
@shared_options
def main(
    options: Options, publish: Publish, view: int, branches: int, branch_tokens: int, throttle: float, small: bool,
    mixed_s: float,
) -> None:  # fmt: skip
    with TemporaryDirectory() as name:
        root = Path(name)
        model = root / "model"
        write_model(model, small)
        folders = {each: root / each for each in ("one", "two", "mixed")}
        for folder in folders.values():
            folder.mkdir()
        one = Cell(folders["one"], model, {"ant": []})
        two = Cell(folders["two"], model, {"bee": [], "cat": []})
        rows = branches * branch_tokens
        logits: dict[str, np.ndarray] = {}

        def arm(label: str, cell: Cell, nodes: int) -> Arm:
            def run() -> float:
                cell.serial += 1
                got = cell.score(request(cell.serial, view, branches, branch_tokens, f"v{cell.serial}"))
                logits[f"{label} {cell.serial}"] = m.f32(got.logits)
                scanned = cell.scanned(got, rows)
                if not view <= scanned <= nodes * view:
                    raise SystemExit(
                        f"{label}: {scanned} view tokens were scanned, at most {nodes * view} are needed "
                        f"({got.passes} passes, {got.retries} tried again: a node kept from its core is late)"
                    )
                return 1.0

            return Arm(label, run)

        with one.up(), two.up():
            title = f"{branches} behaviours of {branch_tokens} tokens on a view of {view}, CPU nodes of one thread"
            report = measure([arm("one node", one, 1), arm("two nodes", two, 2)], options, title=title, unit="requests")
        worst = max(
            float(np.abs(logits[f"one node {n}"] - logits[f"two nodes {n}"]).max())
            for n in range(1, min(one.serial, two.serial) + 1)
        )
        click.echo(f"logits of one node and of two differ by {worst:.1e} at most", err=True)
        if mixed_s:
            with Cell(folders["mixed"], model, {"fast": [], "slow": ["--throttle", str(throttle)]}).up() as mixed:
                mix(mixed, mixed_s)
    publish(report)


def mix(cell: Cell, seconds: float) -> None:
    """Keep both busy; print shares of rows and those that the cost curves predict."""

    async def caller(number: int, until_s: float, done: dict[str, int]) -> None:
        serial = number * 1_000_000
        while time.monotonic() < until_s:
            serial += 1
            got = await cell.fleet.score(request(serial, 200, 8, 24))
            for name in got.nodes:
                done[name] = done.get(name, 0) + 1

    async def load() -> tuple[dict[str, int], dict[str, float]]:
        done: dict[str, int] = {}
        await asyncio.gather(*(caller(n, time.monotonic() + seconds, done) for n in range(16)))
        cost = {node.name: node.cost.seconds(200, 8 * 24) - node.cost.c0 for node in (await cell.fleet.status()).nodes}
        return done, cost

    done, cost = cell.call(load())
    speed = {name: 1.0 / each for name, each in cost.items()}
    for name in sorted(done):
        share, predicted = done[name] / sum(done.values()), speed[name] / sum(speed.values())
        click.echo(f"{name}: {done[name]} requests, share {share:.3f}, by its cost curve {predicted:.3f}", err=True)


if __name__ == "__main__":
    main()
