"""Passes over the wire: router and node in two processes, a core each, whole links (frames, records, fences) on both.

A pass is 36 KB of token ids one way, 96 logits back. Throughput with `--window` passes in flight; round trips one at a
time. CPU is each process's own, by its clock. `aioquic`, where it is installed, moves the same bytes with its own
asyncio client and server on plain streams, no client certificate, no records: less work than the link does.

    python bench/wire.py --rounds 5
"""

import asyncio
import importlib.util
import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np

from mainspring.bench import Arm, Options, measure
from mainspring.bench.cli import Publish, shared_options
from mainspring.wire import messages as m
from mainspring.wire.errors import Close
from mainspring.wire.link import CloseConnection, Closed, Joined, Knock, Link, LinkEvent, Received, Rules
from mainspring.wire.pki_files import PkiFolder
from mainspring.wire.quic import QuicTransport
from mainspring.wire.tcp import TcpTransport
from mainspring.wire.transport import Connection, Lost
from wire_aioquic import AioquicArm, aioquic_node
from wire_figures import Figures

TRANSPORTS = {"tcp": TcpTransport, "quic": QuicTransport}
TOKENS = np.random.default_rng(0).integers(0, 151_000, 9_000).astype("<u4").tobytes()
LOGITS = np.random.default_rng(1).normal(size=96).astype("<f4").tobytes()
PATIENT = Rules(timing=m.Timing(idle_s=300.0))  # arms wait for each other


class Shell:
    """A link on a running loop."""

    def __init__(self, hear: "Callable[[Shell, LinkEvent], None]") -> None:
        self.link: Link
        self.connection: Connection
        self._hear = hear
        self._timer: asyncio.TimerHandle | None = None

    def accept(self, connection: Connection) -> "Shell":
        self.connection = connection
        now_s = time.monotonic()
        if connection.dialer:
            self.link = Link.dial(m.Hello(role="node", name="ant", instance=1), now_s, PATIENT)
        else:
            self.link = Link.answer(connection.peer, now_s, PATIENT)
        asyncio.get_running_loop().call_soon(self.turn)
        return self

    def data_received(self, stream: int, data: bytes, end: bool) -> None:
        self._events(self.link.receive(stream, data, end, time.monotonic()))
        self.turn()

    def stream_reset(self, stream: int) -> None:
        self._events(self.link.reset(stream, time.monotonic()))

    def writable(self) -> None: ...

    def connection_lost(self, lost: Lost) -> None:
        self._events(self.link.lost(lost.close, lost.message, lost.remote, time.monotonic()))

    def turn(self) -> None:
        outputs, events = self.link.poll(time.monotonic())
        for output in outputs:
            if isinstance(output, CloseConnection):
                self.connection.close(output.close, output.message)
            else:
                self.connection.write(output.stream, output.data, output.end)
        self._events(events)
        if self._timer is None and (deadline := self.link.next_deadline()) is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.turn()

    def _events(self, events: list[LinkEvent]) -> None:
        for event in events:
            self._hear(self, event)


class LinkArm:
    """The router's side; the node runs in a child."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.figures = Figures()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._shell: Shell
        self._serial = 0
        self._folder = folder

    async def start(self) -> int:
        self._joined = asyncio.get_running_loop().create_future()
        transport = TRANSPORTS[self.name](self._folder / "router-hill")
        self._endpoint = await transport.listen("127.0.0.1", 0, Shell(self._hear).accept)
        return self._endpoint.address[1]

    async def ready(self) -> None:
        self._shell = await self._joined

    def _hear(self, shell: Shell, event: LinkEvent) -> None:
        if isinstance(event, Knock):
            shell.link.welcome(1, 1, time.monotonic())
        elif isinstance(event, Received) and isinstance(event.message, m.Pong | m.NodeReport):
            if not self._joined.done():
                self._joined.set_result(shell)
        elif isinstance(event, Received) and event.last:
            self._waiting.pop(event.stream).set_result(None)
        elif isinstance(event, Closed):
            for future in self._waiting.values():
                future.set_exception(ConnectionError(event.message))

    async def one(self) -> None:
        self._serial += 1
        work = m.Work(
            fence=m.Fence(pass_id=self._serial, attempt=0, epoch=1),
            parts=(m.Part(request="r", view_tokens=TOKENS),), predicted_s=0.1, start_within_s=10.0,
        )  # fmt: skip
        stream = self._shell.link.open(work, time.monotonic())
        done = self._waiting[stream] = asyncio.get_running_loop().create_future()
        self._shell.turn()
        await done

    async def stop(self) -> None:
        await self._endpoint.stop()


# ------------------------------------------------------------------ the node's process


def node(name: str, folder: Path, port: int, core: int | None, pipe: Pipe) -> None:
    """Answers passes; tells its CPU time when asked over the pipe, ends when it closes."""
    _pin(core)
    if name == "aioquic":
        asyncio.run(aioquic_node(folder, port, LOGITS, lambda: _tell(pipe)))
    else:
        asyncio.run(_link_node(name, folder, port, pipe))


async def _link_node(name: str, folder: Path, port: int, pipe: Pipe) -> None:
    def hear(shell: Shell, event: LinkEvent) -> None:
        if isinstance(event, Joined):
            shell.link.send(0, m.NodeReport(fresh=True), time.monotonic())
        elif isinstance(event, Received) and isinstance(event.message, m.Work):
            answer = m.Done(fence=event.message.fence, measured_s=0.0, logits=LOGITS)
            shell.link.send(event.stream, answer, time.monotonic())

    shell = Shell(hear)
    connection = await TRANSPORTS[name](folder / "node-ant").dial("127.0.0.1", port, shell.accept)
    await _tell(pipe)
    connection.close(Close.GOODBYE)


async def _tell(pipe: Pipe) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def asked() -> None:
        try:
            pipe.recv()
            pipe.send(time.process_time())
        except EOFError:
            loop.remove_reader(pipe.fileno())
            over.set()

    loop.add_reader(pipe.fileno(), asked)
    await over.wait()


def _pin(core: int | None) -> None:
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


# ------------------------------------------------------------------ the measurement


@click.command(help=__doc__)
@click.option("--passes", type=click.IntRange(1), default=2000, show_default=True, help="Of one sample.")
@click.option("--trips", type=click.IntRange(1), default=500, show_default=True, help="Single round trips of a sample.")
@click.option("--window", type=click.IntRange(1), default=16, show_default=True, help="Passes in flight.")
@shared_options
def main(options: Options, publish: Publish, passes: int, trips: int, window: int) -> None:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    here, there = (cores[0], cores[1]) if len(cores) > 1 else (None, None)
    _pin(here)
    loop = asyncio.new_event_loop()
    with TemporaryDirectory() as name:
        folder = Path(name) / "pki"
        made = PkiFolder.create(folder, "bench", time.time())
        made.issue("router", "hill", time.time())
        made.issue("node", "ant", time.time())
        sides: list[LinkArm | AioquicArm] = [LinkArm("quic", folder), LinkArm("tcp", folder)]
        if importlib.util.find_spec("aioquic") is not None:
            sides.append(AioquicArm(folder, TOKENS, len(LOGITS)))
        else:
            click.echo("aioquic is not installed: its arm is left out", err=True)
        nodes = [Node(loop, side, folder, there) for side in sides]
        arms = [_arm(loop, each, passes, trips, window) for each in nodes]
        report = measure(arms, options, title=f"36 KB passes, {window} in flight, two processes", unit="passes")
        publish(report)
        for side in sides:
            click.echo(_card(side.name, side.figures))
        for each in nodes:
            each.stop()


class Node:
    """The other process. Started with the first sample: links would not outlast the wait for a quiet machine."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, side: LinkArm | AioquicArm, folder: Path, core: int | None
    ) -> None:
        self.side = side
        self._loop, self._folder, self._core = loop, folder, core
        self._pipe: Pipe | None = None

    def start(self) -> None:
        if self._pipe is not None:
            return
        port = self._loop.run_until_complete(self.side.start())
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = (self.side.name, self._folder, port, self._core, theirs)
        self._child = context.Process(target=node, args=arguments, daemon=True)
        self._child.start()
        theirs.close()
        self._loop.run_until_complete(asyncio.wait_for(self.side.ready(), 60.0))

    def cpu_s(self) -> float:
        assert self._pipe is not None  # noqa: S101 - started by the sample's setup
        self._pipe.send(None)
        return float(self._pipe.recv())

    def stop(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._loop.run_until_complete(self.side.stop())
            self._child.join(10.0)


def _arm(loop: asyncio.AbstractEventLoop, other: Node, passes: int, trips: int, window: int) -> Arm:
    side = other.side

    async def throughput() -> None:
        left = iter(range(passes))

        async def lane() -> None:
            for _ in left:
                await side.one()

        await asyncio.gather(*(lane() for _ in range(window)))

    async def latency() -> None:
        for _ in range(trips):
            begin = time.perf_counter()
            await side.one()
            side.figures.trips_s.append(time.perf_counter() - begin)

    def setup() -> None:
        other.start()
        loop.run_until_complete(latency())

    def run() -> float:
        ours_s, theirs_s = time.process_time(), other.cpu_s()
        loop.run_until_complete(throughput())
        side.figures.router_s += time.process_time() - ours_s
        side.figures.node_s += other.cpu_s() - theirs_s
        side.figures.passes += passes
        return passes

    return Arm(side.name, run, setup)


def _card(name: str, figures: Figures) -> str:
    """Warm-ups are in it too."""
    p50, p99 = np.percentile(figures.trips_s, [50, 99]) * 1e3
    router_ms, node_ms = figures.router_s / figures.passes * 1e3, figures.node_s / figures.passes * 1e3
    return (
        f"{name}: CPU a pass {router_ms:.3f} ms on the router, {node_ms:.3f} ms on the node; "
        f"one at a time p50 {p50:.2f} ms, p99 {p99:.2f} ms ({len(figures.trips_s)} round trips)"
    )


if __name__ == "__main__":
    main()
