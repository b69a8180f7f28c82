"""The whole HTTP path under open-loop load: real processes and sockets, nodes that compute nothing.

`--gateways 0` is `mainspring serve` (gateway and router in one process), else so many `mainspring gateway` before one
`mainspring router`. Servers run on the first core, the generator and the null node on the second. Conversations have
about 8,000 tokens, never repeat whole and share half their text with earlier ones; `--cold`: nothing came before.

    python bench/gateway.py --rates 110,150,300
    python bench/gateway.py --transport quic --gateways 2 --rates 150 --cold
"""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from mainspring.bench import environment
from mainspring.bench.http.figures import LoadReport
from mainspring.bench.http.run import Plan, load
from mainspring.bench.http.sender import Target
from mainspring.bench.http.traffic import Shape
from mainspring.fleet.client import FleetClient
from mainspring.hub import EMBEDDED, model_folder
from mainspring.wire import messages as m
from mainspring.wire.dial import Choice
from mainspring.wire.pki_files import PkiFolder

START_S = 90.0
CONTEXT = 32_768
SERVERS, LOADERS = 0, 1
"""Cores."""
METRIC = re.compile(r"^(\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)


class Service:
    """Processes of one service: `urls` of its gateways, `pids` by name."""

    def __init__(self, folder: Path, pinned: bool) -> None:
        self.folder, self._pinned = folder, pinned
        self.urls: list[str] = []
        self.pids: dict[str, int] = {}
        self.transport: Choice = "tcp"
        self._processes: list[subprocess.Popen[bytes]] = []

    def spawn(self, name: str, core: int, *arguments: str) -> Path:
        """Returns the log it writes."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(  # noqa: S603 - ours
                [sys.executable, "-m", "mainspring", *arguments], stdout=out, stderr=out, cwd=self.folder,
                preexec_fn=lambda: self.pin(core),
            )  # fmt: skip
        self._processes.append(process)
        self.pids[name] = process.pid
        return log

    def pin(self, core: int, pid: int = 0) -> None:
        """`pid` 0: whoever calls. All threads: those that are there keep their core when the first one changes its."""
        if self._pinned:
            for thread in Path(f"/proc/{pid or os.getpid()}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {core % (os.cpu_count() or 1)})

    def url(self, log: Path) -> str:
        """Where the process that writes this log listens."""
        until = time.monotonic() + START_S
        while time.monotonic() < until and all(process.poll() is None for process in self._processes):
            for line in log.read_text(errors="replace").splitlines():
                if line.startswith("listening on "):
                    return line.split()[2].rstrip(";")
            time.sleep(0.1)
        raise SystemExit(f"{log.name} names no address")

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(30.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def write_model(folder: Path) -> Path:
    """The embedded scorer's bundle with a context for long conversations; null nodes need no more of it."""
    shutil.copytree(model_folder(EMBEDDED), folder)
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = CONTEXT
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def child_of(pid: int) -> int:
    """The one local node of `mainspring serve`."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


@contextmanager
def service(
    folder: Path,
    transport: str,
    gateways: int,
    cost: tuple[float, float, float],
    probes: tuple[str, ...] = (),
    pinned: bool = True,
) -> Iterator[Service]:
    """Up and scoring. `probes`: further certificates of clients."""
    folder.mkdir()
    pki = PkiFolder.create(folder / "pki", "bench", time.time())
    holders = [("router", "hill"), ("client", "gate"), ("node", "ant"), *(("client", name) for name in probes)]
    for role, name in holders:
        pki.issue(role, name, time.time(), hosts=("127.0.0.1",) if role == "router" else ())
    write_model(folder / "null")
    (folder / "node.toml").write_text(
        f'[node]\nprobe_s = 2.0\nprobe_pass_s = 0.3\nstate = ""\nnull_cost = {list(cost)}\n'
        f'transport = "{transport}"\ndevice = "null"\nmodel = "null"\ntls = "pki/node-ant"\n'
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    (folder / "fleet.toml").write_text(
        f'[router]\nlisten = "127.0.0.1:{port}"\ntransports = ["{transport}"]\nstate = "state"\n'
        '[tls]\nfolder = "pki/router-hill"\nauthority = "pki"\n'
        "[limits]\nstreams = 4096\n[gateway]\nport = 0\n[gateway.limits]\ntenant_concurrent = 1024\n"
    )
    made = Service(folder, pinned)
    made.transport = "quic" if transport == "quic" else "tcp"
    try:
        if gateways:
            made.spawn("router", SERVERS, "router", "--config", "fleet.toml")
            logs = [
                made.spawn(
                    f"gateway{n}", SERVERS, "gateway", "--router", f"127.0.0.1:{port}", "--tls", "pki/client-gate",
                    "--transport", transport, "--config", "fleet.toml",
                )
                for n in range(gateways)
            ]  # fmt: skip
        else:
            with (folder / "fleet.toml").open("a") as file:
                file.write('[[node]]\nname = "ant"\nmodel = "null"\nargs = ["--config", "node.toml"]\n')
            logs = [made.spawn("serve", SERVERS, "serve", "--config", "fleet.toml")]
        if gateways:
            made.spawn("node", LOADERS, "node", "--config", "node.toml", "--join", f"127.0.0.1:{port}")
        made.urls = [made.url(log) for log in logs]
        for url in made.urls:
            _answers(url)
        if not gateways:
            made.pids["node"] = child_of(made.pids["serve"])
            made.pin(LOADERS, made.pids["node"])
        yield made
    except BaseException:
        for log in folder.glob("*.log"):
            click.echo(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}", err=True)
        raise
    finally:
        made.stop()


def _answers(url: str) -> None:
    until = time.monotonic() + START_S
    body = {"span": {"input": "Hi", "output": "Hello."}, "behaviors": [{"id": "b", "definition": "greets the user"}]}
    asked = urllib.request.Request(  # noqa: S310 - our own address
        f"{url}/v1/scores", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    while True:
        try:
            with urllib.request.urlopen(asked, timeout=10.0) as reply:  # noqa: S310
                reply.read()
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.3)


def metrics(url: str) -> dict[str, float]:
    """Sums over labels, and `name{status="..."}` for the requests of the scoring route."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10.0) as reply:  # noqa: S310 - our own address
        text = reply.read().decode()
    found: dict[str, float] = {}
    for name, labels, value in METRIC.findall(text):
        found[name] = found.get(name, 0.0) + float(value)
        if name == "mainspring_requests_total" and 'route="/v1/scores"' in labels:
            status = re.search(r'status="(\d+)"', labels)
            if status:
                found[f"scores {status[1]}"] = found.get(f"scores {status[1]}", 0.0) + float(value)
    return found


async def router_status(folder: Path, port: int, transport: Choice = "tcp") -> m.Status:
    """As `client-probe`."""
    async with FleetClient.of(folder / "pki" / "client-probe", "127.0.0.1", port, transport=transport) as fleet:
        return await fleet.status()


def port_of(made: Service) -> int:
    found = re.search(r'listen = "127.0.0.1:(\d+)"', (made.folder / "fleet.toml").read_text())
    assert found is not None  # noqa: S101 - we wrote it
    return int(found[1])


def agree(made: Service) -> str:
    """What the gateways say they answered and what the router says; SystemExit where they differ."""
    told = asyncio.run(router_status(made.folder, port_of(made), made.transport))
    answered = [int(metrics(url).get("scores 200", 0.0)) for url in made.urls]
    if sum(answered) != told.counters["answered"]:
        raise SystemExit(f"the gateways answered {answered}, the router {told.counters['answered']:.0f}")
    return f"counters agree: {' + '.join(map(str, answered))} answered by the gateways, as many by the router"


def measure(made: Service, rate: float, seconds: float, shape: Shape, **changes: Any) -> LoadReport:
    """With several gateways the generator asks them in turn."""
    target = Target(url=",".join(f"{url}/v1/scores" for url in made.urls), **changes)
    return load(target, shape, Plan(rate=rate, seconds=seconds, warmup_s=4.0), made.pids)


@click.command(help=__doc__)
@click.option("--rates", default="110,150,300", show_default=True, help="Requests a second, one run each.")
@click.option("--seconds", type=click.FloatRange(1.0), default=20.0, show_default=True)
@click.option("--tokens", type=click.IntRange(16), default=8000, show_default=True)
@click.option("--behaviors", type=click.IntRange(1), default=8, show_default=True)
@click.option("--transport", type=click.Choice(["tcp", "quic"]), default="tcp", show_default=True)
@click.option("--gateways", type=click.IntRange(0, 8), default=0, show_default=True, help="0: mainspring serve.")
@click.option("--cold", is_flag=True, help="No turn and no behavior came before.")
@click.option("--pin/--no-pin", "pinned", default=True, show_default=True, help="Not on a core that others hold.")
@click.option("--cost", type=(float, float, float), default=(1e-3, 5e-8, 1e-7), show_default=True,
              help="Of a null pass: seconds, a view token, a branch row.")  # fmt: skip
def main(
    rates: str, seconds: float, tokens: int, behaviors: int, transport: str, gateways: int, cold: bool,
    pinned: bool, cost: tuple[float, float, float],
) -> None:  # fmt: skip
    shape = Shape(tokens=tokens, behaviors=behaviors, share=0.0 if cold else 0.5, fresh_behaviors=cold)
    where = environment.record()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        made = stack.enter_context(service(folder / "service", transport, gateways, cost, ("probe",), pinned=pinned))
        made.pin(LOADERS)
        click.echo(
            f"### {'serve' if not gateways else f'{gateways} gateways'}, {transport}, {'cold' if cold else 'half'}"
        )
        for rate in rates.split(","):
            click.echo("\n" + measure(made, float(rate), seconds, shape).markdown())
        click.echo(f"- {agree(made)}")
    load_average = " ".join(f"{value:.2f}" for value in where.load_average)
    click.echo(f"- {where.device}, {where.cores} cores, load average {load_average}; {where.kernel}; {where.date}")
    click.echo(f"- mainspring {where.package} ({where.commit}{' + changes' if where.dirty else ''}), {where.python}")
    click.echo(f"- `{where.command}`")


if __name__ == "__main__":
    main()
