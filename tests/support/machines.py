"""Real processes on loopback: an authority, a router, nodes, and what a test asks of them. Waits are generous."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mainspring.fleet.client import FleetClient
from mainspring.wire import messages as m
from mainspring.wire.pki_files import PkiFolder
from support.fleet import words
from support.folders import write_tiny_model

WAIT_S = 60.0


class Machine:
    """A folder with an authority and a model; processes started from it are ended by `stop`."""

    def __init__(self, folder: Path, **model: object) -> None:
        self.folder = folder
        self.pki = PkiFolder.create(folder / "pki", "fleet", time.time())
        self.pki.issue("router", "hill", time.time(), hosts=("127.0.0.1",))
        self.pki.issue("client", "gate", time.time())
        self.model = folder / "tiny"
        self.model.mkdir()
        write_tiny_model(self.model, **model)  # type: ignore[arg-type]
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Machine":
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()

    def spawn(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HOME": str(self.folder)}
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - ours
                [sys.executable, "-m", "mainspring", *arguments], stdout=log, stderr=log, cwd=self.folder,
                env=environment,
            )  # fmt: skip
        self.processes[name] = process
        return process

    def router(self, *arguments: str) -> subprocess.Popen[bytes]:
        return self.spawn(
            "router", "router", "--listen", f"127.0.0.1:{self.port}", "--tls", str(self.folder / "pki/router-hill"),
            *arguments,
        )  # fmt: skip

    def node(self, name: str, *arguments: str, port: int | None = None, **keys: str) -> subprocess.Popen[bytes]:
        """`keys` go to the `[node]` section as they are."""
        folder = self.folder / "pki" / f"node-{name}"
        if not folder.exists():
            self.pki.issue("node", name, time.time())
        config = self.folder / f"{name}.toml"
        config.write_text("[node]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items()))
        return self.spawn(
            name, "node", "--join", f"127.0.0.1:{port or self.port}", "--tls", str(folder), "--model",
            str(self.model), "--config", str(config), *arguments,
        )  # fmt: skip

    def client(self) -> FleetClient:
        folder = self.folder / "pki/client-gate"
        return FleetClient.of(folder, "127.0.0.1", self.port, connect_s=WAIT_S)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()


async def until_nodes(fleet: FleetClient, wanted: Callable[[dict[str, m.NodeStatus]], bool]) -> dict[str, m.NodeStatus]:
    """Wait until what the router says of its nodes is as wanted."""
    async with asyncio.timeout(WAIT_S):
        while True:
            nodes = {each.name: each for each in (await fleet.status()).nodes}
            if wanted(nodes):
                return nodes
            await asyncio.sleep(0.1)


def ask(
    view: int = 60, branches: int = 4, rows: int = 6, seed: int = 0, slo: str = "batch", **fields: object
) -> m.Submit:
    """Of the tiny model's vocabulary."""
    rng = np.random.default_rng(seed)
    return m.Submit(
        request=f"r{seed}", model="tiny", slo=slo, view_tokens=rng.integers(0, 250, view).astype("<u4").tobytes(),
        branch_lengths=words(*[rows] * branches),
        branch_tokens=rng.integers(0, 250, rows * branches).astype("<u4").tobytes(),
        label_counts=words(*[3] * branches), label_ids=words(*[11, 12, 13] * branches), **fields,
    )  # type: ignore[arg-type]  # fmt: skip


def free_port() -> int:
    """Free for both transports a moment ago."""
    for _ in range(20):
        with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", 0))
            port = int(tcp.getsockname()[1])
            try:
                udp.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no free port")
