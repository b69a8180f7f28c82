"""`mainspring serve`: gateway, router and a supervised local node under one command.

The router runs in this process and listens on loopback; the node is a child that joins it there. Certificates are made
on the spot, in a folder that lives as long as the process, unless the file has a `[tls]` table. What the file says of
router, limits, classes and nodes holds as it does for `mainspring router`.
"""

import asyncio
import errno
import logging
import tempfile
import time
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from mainspring.errors import MainspringError
from mainspring.faultlog import log_fault
from mainspring.fleet.client import FleetClient
from mainspring.fleet.config import FleetConfig, NodeSection, read_config
from mainspring.fleet.errors import ConfigError
from mainspring.fleet.serve import Serving
from mainspring.gateway.config import GatewayConfig
from mainspring.gateway.keys import Keys
from mainspring.gateway.server import HttpServer
from mainspring.gateway.service import Gateway
from mainspring.wire.inprocess import InProcess
from mainspring.wire.pki_files import PkiFolder
from mainspring.wire.transport import Identity

log = logging.getLogger("mainspring.gateway")

NODE, ROUTER, CLIENT = "local", "local", "gateway"
RENEW_S = 20 * 86_400.0
LOOK_S = 0.1
PORTS_TRIED = 5
FLEET_S = 15.0
"""For nodes to end after the last request."""
Ready = Callable[[str, int], None]
Serves = Callable[[Gateway], None]


class NodeLostError(MainspringError):
    """The only local node can't be kept running; its log says why."""

    code = "node_given_up"


class Fleet:
    """A fleet configuration that lacks nothing, and the folders that were made for it."""

    def __init__(self, path: Path | None, node: NodeSection | None, folder: Path) -> None:
        """`node` where the file has none; `folder` is this process's own. ConfigError, PkiError."""
        tree = tables(path)
        own = "tls" not in tree
        listen = "127.0.0.1:0" if own and "listen" not in tree.get("router", {}) else None
        state = str(folder / "state") if path is None else None
        authority = folder / "pki"
        tls = (str(authority / f"router-{ROUTER}"), str(authority)) if own else (None, None)
        if own:
            made = PkiFolder.create(authority, "local", time.time())
            made.issue("router", ROUTER, time.time(), hosts=("127.0.0.1",))
        config = read_config(
            path, router__listen=listen, router__state=state, tls__folder=tls[0], tls__authority=tls[1]
        )
        if not config.tls.authority:
            raise ConfigError("is needed here: the nodes' certificates are made by it",
                              param=f"{path}: tls.authority")  # fmt: skip
        if not config.nodes and node is not None:
            config = msgspec.structs.replace(config, nodes=(node,))
        self.config: FleetConfig = config
        self._own = own

    def certify(self) -> None:
        """The router's certificate, where it is ours."""
        if self._own:
            PkiFolder(Path(self.config.tls.authority)).issue("router", ROUTER, time.time(), hosts=("127.0.0.1",))


def tables(path: Path | None) -> dict[str, Any]:
    """Which tables the file has; `read_config` says what is wrong with them."""
    if path is None:
        return {}
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found.get("router", {}), dict) else {}


async def serve(
    config: GatewayConfig, path: Path | None, node: NodeSection | None, listening: Ready, serves: Serves
) -> None:  # fmt: skip
    """Until stopped. `listening(host, port)` once HTTP is there, `serves(gateway)` once a node is ready."""
    with tempfile.TemporaryDirectory(prefix="mainspring-", ignore_cleanup_errors=True) as folder:
        fleet = Fleet(path, node, Path(folder))
        serving, running = await _listening(fleet.config)
        try:
            await _serve_http(config, fleet, serving, listening, serves)
        finally:
            serving.stop()
            with suppress(TimeoutError):
                async with asyncio.timeout(FLEET_S):
                    await asyncio.shield(running)
            if not running.done():
                serving.stop()
            await running


async def _listening(config: FleetConfig) -> "tuple[Serving, asyncio.Task[None]]":
    """A router that takes links. Where the port is left to the system, the one that UDP got may be taken for TCP: then
    another is tried, a few times. ConfigError."""
    for attempt in range(PORTS_TRIED):
        serving = Serving(config)
        running = asyncio.create_task(serving.run())
        waiting = asyncio.create_task(serving.ready.wait())
        await asyncio.wait((waiting, running), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not running.done():
            return serving, running
        error = running.exception()
        is_taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE and config.address[1] == 0
        if not is_taken or attempt == PORTS_TRIED - 1:
            break
    if isinstance(error := running.exception(), OSError):
        raise ConfigError(f"can't listen on {config.router.listen}: {error.strerror or error}", param="router.listen")
    running.result()
    raise ConnectionError("the router ended before it listened")


async def _serve_http(
    config: GatewayConfig, fleet: Fleet, serving: Serving, listening: Ready, serves: Serves
) -> None:  # fmt: skip
    keys = Keys.read(Path(config.keys)) if config.keys else Keys.none()
    # The same frames and link as over a socket; what TLS would protect never leaves the process.
    me, router = Identity("local", "client", CLIENT), Identity("local", "router", ROUTER)
    here = InProcess(me, router, serving.driver.accept)
    client = FleetClient(here, *serving.address, name=CLIENT)
    async with client, Gateway(config, client, keys) as gateway:
        server = HttpServer(gateway, listening)
        http = asyncio.create_task(server.run())
        aside = [
            asyncio.create_task(_watch(gateway, serving, serves)),
            asyncio.create_task(_renew(fleet)),
        ]
        try:
            await asyncio.wait((http, aside[0]), return_when=asyncio.FIRST_COMPLETED)
            if aside[0].done() and aside[0].exception() is not None:
                server.stop()
                await http
                aside[0].result()
            await http
        finally:
            for task in aside:
                task.cancel()
            await asyncio.gather(*aside, return_exceptions=True)


async def _watch(gateway: Gateway, serving: Serving, serves: Serves) -> None:
    """NodeLostError when every local node was given up before one ever served; later that is for `/status` to say."""
    nodes = len(serving.config.nodes)
    while not gateway.ready()[0]:
        if serving.shell.tally.counts.get("nodes_given_up", 0.0) >= nodes:
            raise NodeLostError(_last_words(Path(serving.config.router.state) / "logs"))
        await asyncio.sleep(LOOK_S)
    serves(gateway)
    await asyncio.Event().wait()


def _last_words(logs: Path) -> str:
    """The folder of the logs may be gone when the message is read."""
    lines = [line for path in sorted(logs.glob("*.log")) for line in path.read_text("utf-8", "replace").splitlines()]
    return f"no local node can be kept running; the last of them said: {(lines or ['nothing'])[-1][:500]}"


async def _renew(fleet: Fleet) -> None:
    """Certificates last 90 days; both ends take a new one up by themselves."""
    while True:
        await asyncio.sleep(RENEW_S)
        try:
            fleet.certify()
        except Exception as error:  # of files and keys: its message is the operator's
            log_fault(log, error, "the router's certificate can't be renewed (%s)", error)
