"""What `mainspring router` runs: transports, the shell, supervised nodes, signals.

Listens on QUIC and TCP with the same port. Revoked and expired certificates end their links in `wire.watch`. SIGTERM
and SIGINT drain within `router.drain_s`; a second one ends at once. Owns the process and its clocks.
"""

import asyncio
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from mainspring.faultlog import log_fault
from mainspring.fleet import clock
from mainspring.fleet.bundles import BundleCache
from mainspring.fleet.config import FleetConfig
from mainspring.fleet.driver import Driver
from mainspring.fleet.shell import Shell
from mainspring.fleet.supervise import Children
from mainspring.wire.pki_files import PkiFolder
from mainspring.wire.quic import QuicTransport
from mainspring.wire.tcp import TcpTransport
from mainspring.wire.transport import Endpoint, Transport

log = logging.getLogger("mainspring.fleet")

CHILDREN_S = 10.0
RENEW_S = 20 * 86_400.0
"""Certificates of local nodes last 90 days."""
LOOK_S = 0.25
BLOCKING = 2
"""Threads for disk, hashes and the check of bundles."""


class Serving:
    """One router's life. `address` is known once `ready` is set."""

    def __init__(self, config: FleetConfig) -> None:
        self.config = config
        self.ready = asyncio.Event()
        self.address = ("", 0)
        state = Path(config.router.state)
        bundles = BundleCache(state / "bundles", config.limits.bundle_mib << 20)
        self.shell = Shell(config.settings(), random.getrandbits(52), clock.now_s(), bundles)
        loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(BLOCKING, "bundles")
        self.driver = Driver(self.shell, clock.now_s, loop.call_later, self._executor, loop.call_soon_threadsafe)
        self.children: Children | None = None
        self._stop = asyncio.Event()
        self._signals = 0

    async def run(self) -> None:
        """Until stopped. SelfCheckError, PkiError, OSError before a port is open."""
        endpoints = await self._listen()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError, RuntimeError):  # not in the main thread: whoever embeds us stops us
                loop.add_signal_handler(number, self.stop)
        self._supervise()
        self.ready.set()
        try:
            await self._stop.wait()
        finally:
            if self.children is not None:
                await self.children.stop(CHILDREN_S)
            for endpoint in endpoints:
                await endpoint.stop()
            self.shell.bundles.stop()
            self._executor.shutdown(wait=False, cancel_futures=True)
            log.info("the router has ended")

    def stop(self) -> None:
        """Drain; the second time end at once."""
        self._signals += 1
        if self._signals > 1:
            log.warning("told to stop again: what is open is left")
            self._stop.set()
            return
        within_s = self.config.router.drain_s
        log.info("draining within %g s: %d requests are open", within_s, len(self.shell.clients.open))
        self.shell.drain(within_s, self.driver.now_s())
        self.driver.arm()
        asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        if self.shell.done:
            self._stop.set()
        else:
            asyncio.get_running_loop().call_later(LOOK_S, self._look)

    async def _listen(self) -> list[Endpoint]:
        """QUIC first: whoever dials in between must not take UDP to be blocked. Where the port is left to the system,
        both get the same."""
        config = self.config
        folder, revoked = Path(config.tls.folder), Path(config.tls.revoked) if config.tls.revoked else None
        made: dict[str, Callable[[], Transport]] = {
            "quic": lambda: QuicTransport(folder, revoked=revoked),
            "tcp": lambda: TcpTransport(folder, revoked=revoked),
        }
        host, port = config.address
        endpoints: list[Endpoint] = []
        try:
            for name, make in made.items():
                if name in config.router.transports:
                    endpoint = await make().listen(host, port, self.driver.accept)
                    endpoints.append(endpoint)
                    port = endpoint.address[1]
                    log.info("listening on %s port %d by %s", host, port, name)
        except BaseException:
            for endpoint in endpoints:
                await endpoint.stop()
            raise
        self.address = (host, port)
        return endpoints

    # -------------------------------------------------------------- local nodes

    def _supervise(self) -> None:
        if not self.config.nodes:
            return
        commands = {node.name: node_command(self.config, node.name, self.address[1]) for node in self.config.nodes}
        self.children = Children(
            commands, Path(self.config.router.state) / "logs", self._exited, self._gave_up, clock.now_s, self._certify
        )
        self.children.start()
        self._renew()

    def _exited(self, name: str) -> None:
        self.shell.child_exited(name, self.driver.now_s())
        self.driver.arm()

    def _gave_up(self, _name: str) -> None:
        self.shell.tally.count("nodes_given_up")

    def _certify(self, name: str) -> None:
        """A certificate for a local node that has none of its own. PkiError."""
        node = next(node for node in self.config.nodes if node.name == name)
        if not node.tls:
            PkiFolder(Path(self.config.tls.authority)).issue("node", name, time.time())

    def _renew(self) -> None:
        """A child takes up a renewed certificate by itself."""

        def renew() -> None:
            for node in self.config.nodes:
                try:
                    self._certify(node.name)
                except Exception as error:  # of files and keys: its message is the operator's
                    log_fault(log, error, "the certificate of node %s can't be renewed (%s)", node.name, error)
            self._renew()

        asyncio.get_running_loop().call_later(RENEW_S, renew)


def node_command(config: FleetConfig, name: str, port: int) -> list[str]:
    """What starts a local node: the same interpreter, over loopback."""
    node = next(node for node in config.nodes if node.name == name)
    folder = Path(node.tls) if node.tls else Path(config.tls.authority) / f"node-{name}"
    host = config.address[0]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    join = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return [sys.executable, "-m", "mainspring", "node", "--join", join, "--model", node.model, "--tls", str(folder),
            *node.args]  # fmt: skip


async def serve(config: FleetConfig) -> None:
    """`mainspring router`."""
    serving = Serving(config)
    task = asyncio.create_task(serving.ready.wait())
    task.add_done_callback(lambda _: log.info("the router is ready, process %d", os.getpid()))
    try:
        await serving.run()
    finally:
        task.cancel()
