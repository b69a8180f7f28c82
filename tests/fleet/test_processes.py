"""Real processes on loopback, where the point is the process: killed, stopped, cut off, restarted, revoked, supervised.

One router and two nodes that compute nothing, 0.2 s a pass, are shared by these tests; each leaves both nodes running.
Every request must come back with the logits it had when nothing was wrong.
"""

import asyncio
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mainspring.fleet.client import FleetClient
from mainspring.fleet.errors import LinkLostError, RequestRefusedError
from mainspring.wire import messages as m
from support.machines import WAIT_S, Machine, ask, until_nodes

SLOW = {"null_cost": "[0.2, 1e-6, 1e-6]", "probe_s": "1.0", "state": '""', "device": '"null"'}
BOTH = {"ant", "bee"}
LINGER_S = 1.5
"""A closed connection's socket is there for a second more, to repeat its last words."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with Machine(tmp_path_factory.mktemp("fleet")) as made:
        made.router()
        for name in sorted(BOTH):
            made.node(name, **SLOW)
        yield made


def play(machine: Machine, scene: object) -> None:
    async def whole() -> None:
        async with machine.client() as fleet:
            await until_nodes(fleet, lambda nodes: {n for n in nodes if nodes[n].state == "ready"} >= BOTH)
            before = await answers(fleet)
            await scene(fleet, before)  # type: ignore[operator]
        await asyncio.sleep(LINGER_S)

    asyncio.run(asyncio.wait_for(whole(), 3 * WAIT_S))


async def answers(fleet: FleetClient) -> list[bytes]:
    return [result.logits for result in await asyncio.gather(*(fleet.score(ask(seed=seed)) for seed in range(10)))]


def answering(fleet: FleetClient) -> "asyncio.Task[list[bytes]]":
    return asyncio.create_task(answers(fleet))


async def answering_with(
    fleet: FleetClient, name: str, at_work: Callable[[m.NodeStatus], bool] = lambda node: node.state == "busy"
) -> "asyncio.Task[list[bytes]]":
    """Answers under way, while that node is at work on some of them.

    All of them together keep it busy for 0.2 s, which a process that gets no CPU for so long does not see: then they
    are asked again. The status is asked for right behind them, on the same link, and so sees them mostly at once."""
    async with asyncio.timeout(WAIT_S):
        while True:
            task = answering(fleet)
            await asyncio.sleep(0.01)
            while not task.done():
                nodes = {each.name: each for each in (await fleet.status()).nodes}
                if name in nodes and at_work(nodes[name]):
                    return task
                await asyncio.sleep(0.02)
            await task


def test_a_node_killed_with_9_mid_pass(machine: Machine) -> None:
    async def scene(fleet: FleetClient, before: list[bytes]) -> None:
        task = await answering_with(fleet, "ant")
        began = time.monotonic()
        machine.processes["ant"].kill()
        assert await task == before
        await until_nodes(fleet, lambda nodes: "ant" not in nodes or nodes["ant"].state == "late")
        assert time.monotonic() - began < WAIT_S
        machine.processes["ant"].wait()
        machine.node("ant", **SLOW)
        await until_nodes(fleet, lambda nodes: nodes.keys() >= BOTH and nodes["ant"].state == "ready")

    play(machine, scene)


def test_status_on_the_command_line(machine: Machine) -> None:
    async def scene(_fleet: FleetClient, _before: list[bytes]) -> None:
        folder = str(machine.folder / "pki/client-gate")
        process = machine.spawn("status", "router", "status", f"127.0.0.1:{machine.port}", "--tls", folder)
        assert await asyncio.to_thread(process.wait, WAIT_S) == 0
        text = machine.log("status")
        assert all(name in text for name in ("ant", "bee", "tiny", "interactive"))

    play(machine, scene)


def test_a_node_stopped_and_continued(machine: Machine) -> None:
    async def scene(fleet: FleetClient, before: list[bytes]) -> None:
        task = await answering_with(fleet, "ant")
        machine.processes["ant"].send_signal(signal.SIGSTOP)
        try:
            assert await task == before, "its work was given to the other"
            await until_nodes(fleet, lambda nodes: "ant" not in nodes)
        finally:
            machine.processes["ant"].send_signal(signal.SIGCONT)
        await until_nodes(fleet, lambda nodes: "ant" in nodes and nodes["ant"].state == "ready")
        assert await answers(fleet) == before

    play(machine, scene)


def test_a_router_killed_and_started_again(machine: Machine) -> None:
    async def scene(fleet: FleetClient, before: list[bytes]) -> None:
        tasks = [asyncio.create_task(fleet.score(ask(seed=n % 10))) for n in range(200)]  # seconds of work
        await until_nodes(fleet, lambda nodes: nodes["ant"].held > 0)
        machine.processes["router"].kill()
        machine.processes["router"].wait()
        machine.router()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, LinkLostError) or end.logits in before for end in ends)  # type: ignore[union-attr]
        assert any(isinstance(end, LinkLostError) for end in ends)
        await until_nodes(fleet, lambda nodes: nodes.keys() >= BOTH)
        assert await answers(fleet) == before

    play(machine, scene)


def test_a_node_told_to_end_finishes_what_it_holds(machine: Machine) -> None:
    async def scene(fleet: FleetClient, before: list[bytes]) -> None:
        task = await answering_with(fleet, "ant")
        machine.processes["ant"].send_signal(signal.SIGTERM)
        assert await task == before
        code = await asyncio.to_thread(machine.processes["ant"].wait, WAIT_S)
        assert code == 0
        machine.node("ant", **SLOW)
        await until_nodes(fleet, lambda nodes: nodes.keys() >= BOTH)

    play(machine, scene)


def test_a_network_cut_and_healed(machine: Machine) -> None:
    """A node behind a wire that stops passing bytes on, for longer than the idle timeout, then goes on."""

    async def scene(fleet: FleetClient, before: list[bytes]) -> None:
        wire = Wire(machine.port)
        port = await wire.open()
        machine.node("cat", "--transport", "tcp", port=port, **SLOW)
        await until_nodes(fleet, lambda nodes: "cat" in nodes)
        task = await answering_with(fleet, "cat")
        wire.passing.clear()
        assert await task == before
        await until_nodes(fleet, lambda nodes: "cat" not in nodes)
        wire.passing.set()
        await until_nodes(fleet, lambda nodes: "cat" in nodes)
        assert await answers(fleet) == before
        machine.processes["cat"].kill()
        await wire.close()

    play(machine, scene)


def test_a_revoked_certificate_ends_its_link_within_a_minute(machine: Machine) -> None:
    async def scene(fleet: FleetClient, before: list[bytes]) -> None:
        machine.node("dog", **SLOW)
        await until_nodes(fleet, lambda nodes: "dog" in nodes)
        began = time.monotonic()
        machine.pki.revoke("node", "dog", time.time())
        await until_nodes(fleet, lambda nodes: "dog" not in nodes)
        assert time.monotonic() - began < 60.0
        assert await answers(fleet) == before
        await asyncio.sleep(1.0)
        assert "dog" not in {node.name for node in (await fleet.status()).nodes}, "nor does it come back"
        machine.processes["dog"].kill()

    play(machine, scene)


def test_a_router_told_to_end_answers_what_is_open(machine: Machine) -> None:
    """Last but one: the router that the others share is replaced, which is what an upgrade does."""

    async def scene(fleet: FleetClient, before: list[bytes]) -> None:
        task = await answering_with(fleet, "ant", lambda node: node.held > 0)
        machine.processes["router"].send_signal(signal.SIGTERM)
        assert await refusal_of(fleet) in ("draining", "link_lost")
        assert await task == before
        assert await asyncio.to_thread(machine.processes["router"].wait, WAIT_S) == 0
        machine.router()
        await until_nodes(fleet, lambda nodes: nodes.keys() >= BOTH)
        assert await answers(fleet) == before

    play(machine, scene)


def test_a_supervised_node_is_started_again_and_ends_with_its_router(tmp_path: Path) -> None:
    """From one TOML file, with a certificate made on the spot."""
    with Machine(tmp_path) as machine:
        (tmp_path / "ant.toml").write_text("[node]\n" + "".join(f"{key} = {value}\n" for key, value in SLOW.items()))
        (tmp_path / "fleet.toml").write_text(
            f'[router]\nlisten = "127.0.0.1:{machine.port}"\n[tls]\nfolder = "pki/router-hill"\nauthority = "pki"\n'
            '[[node]]\nname = "ant"\nmodel = "tiny"\nargs = ["--config", "ant.toml"]\n'
        )
        router = machine.spawn("router", "router", "--config", str(tmp_path / "fleet.toml"))

        async def whole() -> None:
            async with machine.client() as fleet:
                nodes = await until_nodes(fleet, lambda nodes: "ant" in nodes and nodes["ant"].state == "ready")
                first = nodes["ant"]
                before = await answers(fleet)
                [pid] = children(router.pid)
                task = await answering_with(fleet, "ant")
                signal_to(pid, signal.SIGKILL)
                assert await task == before, "the same process comes back, its work is not lost"
                nodes = await until_nodes(fleet, lambda nodes: "ant" in nodes)
                assert nodes["ant"].epoch > first.epoch
            await asyncio.sleep(LINGER_S)
            router.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(router.wait, WAIT_S) == 0

        asyncio.run(asyncio.wait_for(whole(), 2 * WAIT_S))
        assert "serves tiny" in machine.log("router")
        assert (tmp_path / "state/logs/ant.log").stat().st_size > 0


class Wire:
    """A TCP proxy: `passing` cleared, it takes bytes and passes none on, in silence."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.passing = asyncio.Event()
        self.passing.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.to)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pass(source, sink))
            self._tasks.add(task)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                await self.passing.wait()
                sink.write(data)
                await sink.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        sink.close()


async def refusal_of(fleet: FleetClient) -> str:
    """Asks until the router takes no more; what it says then."""
    while True:
        try:
            await fleet.score(ask(seed=77))
        except (RequestRefusedError, LinkLostError) as error:
            return error.code


def children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=True)  # noqa: S603, S607
    return [int(line) for line in found.stdout.split()]


def signal_to(pid: int, number: signal.Signals) -> None:
    import os

    os.kill(pid, number)
