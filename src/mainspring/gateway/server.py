"""The process around the application: the socket, uvicorn, signals, the drain.

SIGTERM and SIGINT: readiness off, nothing new, what is open finishes within `drain_s`, the rest gets its 503; a second
one ends that wait. Sockets stay open meanwhile, so that a balancer sees the readiness go.
"""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import uvicorn

from mainspring.fleet.errors import ConfigError
from mainspring.gateway.app import build_app
from mainspring.gateway.config import GatewayConfig
from mainspring.gateway.drain import Ending
from mainspring.gateway.protocol import guarded
from mainspring.gateway.service import Gateway

log = logging.getLogger("mainspring.gateway")

LOOK_S = 0.1
CUT_S = 2.0
"""For what was cut to say so."""
BACKLOG = 2048


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours."""
        yield


class HttpServer:
    """`ready(host, port)` is called once requests are taken. `stop` is safe to call from a signal handler."""

    def __init__(self, gateway: Gateway, ready: Callable[[str, int], None] | None = None) -> None:
        self._gateway, self._ready = gateway, ready
        self.app = build_app(gateway)
        self._ending = Ending(gateway.config.drain_s)
        self._server: _Server | None = None

    def stop(self) -> None:
        """Drain; the second time at once."""
        gateway = self._gateway
        self._ending.begin(gateway.now_s())
        gateway.closing.set()
        log.info("draining within %g s: %d requests are open", gateway.config.drain_s, gateway.counts.open)

    def connections(self) -> frozenset[Any]:
        """uvicorn's protocols of what is connected now."""
        return frozenset() if self._server is None else frozenset(self._server.server_state.connections)

    async def run(self) -> None:
        """Until stopped. ConfigError where the address can't be bound."""
        config, limits = self._gateway.config, self._gateway.config.limits
        sock = listen(config)
        server = self._server = _Server(
            uvicorn.Config(
                self.app, http=guarded(limits), ws="none", lifespan="off", log_config=None, access_log=False,
                server_header=False, proxy_headers=False, backlog=BACKLOG, timeout_keep_alive=limits.keep_alive_s,
                timeout_graceful_shutdown=int(CUT_S),
            )
        )  # fmt: skip
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError, RuntimeError, ValueError):  # whoever embeds us stops us
                loop.add_signal_handler(number, self.stop)
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        try:
            while not server.started and not serving.done():
                await asyncio.sleep(0.005)
            if self._ready is not None and not serving.done():
                self._ready(*sock.getsockname()[:2])
            await self._until_over(serving)
        finally:
            server.should_exit = True
            await serving

    async def _until_over(self, serving: "asyncio.Task[None]") -> None:
        gateway = self._gateway
        while not serving.done():
            if self._ending.over(gateway.now_s(), gateway.counts.open):
                self.app.cut()
                return
            await asyncio.sleep(LOOK_S)


def listen(config: GatewayConfig) -> socket.socket:
    """ConfigError naming the address."""
    try:
        found = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        where = f"{config.host}:{config.port}"
        raise ConfigError(f"can't listen on {where}: {error.strerror or error}", param="gateway.port") from None
