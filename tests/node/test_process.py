"""`mainspring node` as a process beside a router's: joins over real sockets, outlives the router, leaves when told."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest

from mainspring.backend.torch_cpu import TorchBackend
from mainspring.engine import Branch, Engine, Work
from mainspring.fleet.client import FleetClient
from mainspring.fleet.errors import LinkLostError
from mainspring.node import clock
from mainspring.node.config import resolve
from mainspring.node.opening import open_node
from mainspring.text.bundle import Bundle
from mainspring.wire import messages as m
from mainspring.wire.pki_files import PkiFolder
from support.folders import write_tiny_model
from support.nodes import words

GENEROUS_S = 120.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "small")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet") / "pki"
    made = PkiFolder.create(folder, "fleet", time.time())
    made.issue("router", "hill", time.time(), hosts=("127.0.0.1",))
    for role, name in (("node", "ant"), ("client", "gate")):
        made.issue(role, name, time.time())
    return folder


@contextmanager
def process(log: Path, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as file:
        running = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-m", "mainspring", *map(str, arguments)],
            stdout=file,
            stderr=file,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def router(tmp_path: Path, pki: Path, port: int):
    file = tmp_path / "fleet.toml"
    listen = f'listen = "127.0.0.1:{port}"\nstate = "{tmp_path}/router"\n'
    file.write_text(f'[router]\n{listen}[tls]\nfolder = "{pki}/router-hill"\n')
    return process(tmp_path / "router.log", "router", "--config", file)


def node_file(tmp_path: Path, pki: Path, model: Path, port: int) -> Path:
    file = tmp_path / "node.toml"
    file.write_text(
        f'[node]\njoin = "127.0.0.1:{port}"\nmodel = "{model}"\ntls = "{pki}/node-ant"\nthreads = 1\n'
        f'probe_s = 1.0\nprobe_pass_s = 0.2\nstate = "{tmp_path}/state"\n'
    )
    return file


async def nodes(client: FleetClient, want: int) -> m.NodeStatus | None:
    """Waits until so many nodes are ready."""
    async with asyncio.timeout(GENEROUS_S):
        while True:
            try:
                ready = [n for n in (await client.status()).nodes if n.state in ("ready", "busy")]
                if len(ready) == want:
                    return ready[0] if ready else None
            except LinkLostError:
                pass  # the router is away: that is what is waited for
            await asyncio.sleep(0.2)


def submit(view: np.ndarray, branches: list[np.ndarray], labels: np.ndarray, model: str) -> m.Submit:
    return m.Submit(
        request="r", model=model, slo="batch", view_tokens=words(view), view_key="v",
        branch_lengths=words([len(b) for b in branches]), branch_tokens=words(np.concatenate(branches)),
        label_counts=words([len(labels)] * len(branches)), label_ids=words(list(labels) * len(branches)),
    )  # fmt: skip


def test_a_node_serves_outlives_its_router_and_leaves_when_told(tmp_path: Path, pki: Path, model: Path) -> None:
    port = free_port()
    rng = np.random.default_rng(0)
    view = rng.integers(0, 250, 300)
    branches, labels = [rng.integers(0, 250, 7) for _ in range(12)], np.array([10, 20, 30])
    work = Work(view, tuple(Branch(tokens, labels) for tokens in branches))
    wanted = np.stack(Engine(TorchBackend.open(model, threads=1), cache_bytes=0).score([work])[0])

    code: list[int] = []

    async def story() -> None:
        with process(tmp_path / "node.log", "node", "--config", node_file(tmp_path, pki, model, port)) as node:
            async with FleetClient.of(pki / "client-gate", "127.0.0.1", port, connect_s=GENEROUS_S) as client:
                for _life in range(2):
                    with router(tmp_path, pki, port) as running:
                        status = await nodes(client, 1)
                        assert status is not None
                        assert status.name == "ant"
                        result = await client.score(submit(view, branches, labels, "small"))
                        got = m.f32(result.logits).reshape(12, 3)
                        assert np.abs(got - wanted).max() < 1e-4
                        bundle = (await client.status()).models[0].bundle
                        assert Bundle.unpack(await client.bundle(bundle)).hash == bundle
                        if not _life:
                            running.kill()
                            running.wait()
                            continue
                        node.send_signal(signal.SIGTERM)
                        await nodes(client, 0)
                        code.append(await asyncio.to_thread(node.wait, GENEROUS_S))
                        async with asyncio.timeout(GENEROUS_S):  # before the router is ended, it has heard the goodbye
                            while (await client.status()).nodes:
                                await asyncio.sleep(0.05)
            await asyncio.sleep(2.0)  # the client's connection closes its socket when it has lingered

    asyncio.run(story())
    log = (tmp_path / "node.log").read_text()
    assert code == [0], log
    assert "node ant left: drained" in (tmp_path / "router.log").read_text(), "in good order, not as a crash"
    assert '[node]\njoin = "127.0.0.1' in log, "the resolved configuration is printed"
    assert "dialling again in" in log
    assert "node ant has left" in log
    assert "Traceback" not in log


def test_measured_constants_are_kept_and_found_again(tmp_path: Path, pki: Path, model: Path) -> None:
    config = resolve(node_file(tmp_path, pki, model, 7300), {"cache_mib": 64})
    first = open_node(config, clock.now_s)
    assert first.probe.cost is not None
    assert len(first.probe.anchors) >= 4
    assert first.offering.limits.view_tokens <= 64 << 20
    first.keep_constants(config.state_folder)
    assert first.kept is not first.probe.provisional, "only whole answers are kept"
    first.probe.provisional = False
    first.keep_constants(config.state_folder)
    second = open_node(config, clock.now_s)
    assert second.offering.model == first.offering.model
    if second.probe._adopted:  # a machine that is busier now than a second ago may well measure again
        assert second.probe.anchors == first.probe.anchors
        assert not second.offering.offer().provisional
    other = open_node(resolve(None, {**msgspec.to_builtins(config), "throttle": 3.0}), clock.now_s)
    assert other.key != first.key
    assert "throttled 3 times" in other.offering.offer().device


def test_another_weight_is_another_model(tmp_path: Path, pki: Path, model: Path) -> None:
    other = write_tiny_model(tmp_path / "small", seed=1)
    keys = [
        open_node(resolve(node_file(tmp_path, pki, folder, 7300), {"device": "null"}), clock.now_s).offering.model
        for folder in (model, model, other)
    ]
    assert keys[0] == keys[1] != keys[2]


def test_a_null_device_costs_what_the_file_says(tmp_path: Path, pki: Path, model: Path) -> None:
    file = node_file(tmp_path, pki, model, 7300)
    file.write_text(file.read_text() + "null_cost = [0.004, 1e-5, 2e-5]\n")
    opened = open_node(resolve(file, {"device": "null", "state": ""}), clock.now_s)
    assert opened.probe.cost is not None
    assert opened.probe.cost.c1 == pytest.approx(1e-5, rel=0.5)
    assert opened.probe.cost.c0 >= 0.003


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        (("--join", "nowhere"), 2, "join: is HOST:PORT"),
        (("--model", "/no/such/folder"), 3, "/no/such/folder"),
        (("--tls", "/no/such/folder"), 2, "/no/such/folder"),
        (("--tls", "CLIENT"), 2, "for a client, not for a node"),
    ],
)
def test_what_can_not_start_says_why(
    changes: tuple[str, str], code: int, says: str, tmp_path: Path, pki: Path, model: Path
) -> None:
    flags = {"--join": "127.0.0.1:1", "--model": str(model), "--tls": str(pki / "node-ant")}
    flags |= {changes[0]: changes[1].replace("CLIENT", str(pki / "client-gate"))}
    ran = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-m", "mainspring", "node", *(word for pair in flags.items() for word in pair)],
        capture_output=True, timeout=GENEROUS_S, check=False, text=True,
    )  # fmt: skip
    assert ran.returncode == code, ran.stderr
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr
