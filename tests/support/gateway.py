"""A gateway on a real socket in front of a scripted fleet: the embedded bundle, logits by hash, delays and refusals at
will. And a small HTTP client that shows everything that came back."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from mainspring.core.cost import Cost
from mainspring.core.nouns import DEFAULT_CLASSES, Limits
from mainspring.gateway.config import GatewayConfig
from mainspring.gateway.keys import Keys
from mainspring.gateway.server import HttpServer
from mainspring.gateway.service import Gateway
from mainspring.hub import model_folder
from mainspring.text.bundle import Bundle
from mainspring.wire import messages as m
from support.fleet import expected

WAIT_S = 60.0
MODEL = "f" * 64
CHAT = {
    "input": [{"role": "user", "content": "Where are the docs?"}],
    "output": {"role": "assistant", "content": "At https://docs.example.com/v9."},
}
BEHAVIORS = [
    {"id": "url", "definition": "the assistant made up a URL"},
    {"id": "sorry", "definition": "the assistant apologises"},
]
SCORES = {"model": "embedded", "span": CHAT, "behaviors": BEHAVIORS}


@cache
def packed() -> tuple[str, bytes]:
    """The embedded bundle's hash and bytes."""
    bundle = Bundle.load(model_folder("embedded"))
    return bundle.hash, bundle.pack()


def model_status(**fields: Any) -> m.ModelStatus:
    known: dict[str, Any] = {
        "model": MODEL, "aliases": ("embedded",), "bundle": packed()[0], "nodes": 1, "usable": 1,
        "limits": Limits(view_tokens=4096, context_tokens=5120), "numerics": ("fp32",),
    }  # fmt: skip
    return m.ModelStatus(**known | fields)


def node_status(**fields: Any) -> m.NodeStatus:
    known: dict[str, Any] = {
        "name": "ant", "model": MODEL, "epoch": 2, "state": "ready", "numerics": "fp32", "cost": Cost(0.01, 1e-5, 1e-5),
        "heard_s": 0.1, "idle_s": 1.0,
    }  # fmt: skip
    return m.NodeStatus(**known | fields)


@dataclass
class ScriptedFleet:
    """`hold` keeps requests until it is set; `error` is raised instead of an answer; `submits` is what came."""

    connected: bool = True
    models: tuple[m.ModelStatus, ...] = field(default_factory=lambda: (model_status(),))
    nodes: tuple[m.NodeStatus, ...] = field(default_factory=lambda: (node_status(),))
    hold: asyncio.Event | None = None
    error: Exception | None = None
    predicted_s: float = 0.05
    submits: list[m.Submit] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    cancelled: int = 0
    answered: int = 0

    async def score(self, submit: m.Submit, accepted: Callable[[float], None] | None = None) -> m.Result:
        submit.check()
        self.submits.append(submit)
        if self.error is not None:
            raise self.error
        if accepted is not None:
            accepted(self.predicted_s)
        try:
            if self.hold is not None:
                await self.hold.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.answered += 1
        return m.Result(logits=expected(submit), queue_s=0.001, device_s=0.01, total_s=0.02, nodes=("ant",))

    async def generate(
        self,
        submit: m.Submit,
        accepted: Callable[[float], None] | None = None,
        *,
        within_s: float = WAIT_S,  # noqa: ARG002
    ) -> AsyncIterator[m.Rounds | m.LeaseEnded]:
        """Two tokens; `support.writing` has more."""
        submit.check()
        self.submits.append(submit)
        if self.error is not None:
            raise self.error
        if accepted is not None:
            accepted(self.predicted_s)
        tokens = np.arange(min(2, submit.max_tokens), dtype="<u4").tobytes()
        yield m.Rounds(tokens=tokens)
        yield m.LeaseEnded(tokens=len(tokens) // 4, finish="length")

    async def status(self, passes: int = 0) -> m.Status:  # noqa: ARG002 - as the client has it
        classes = tuple(m.ClassStatus(name=slo.name, priority=slo.priority) for slo in DEFAULT_CLASSES)
        return m.Status(router=1, up_s=5.0, version="x", models=self.models, nodes=self.nodes, classes=classes)

    async def bundle(self, name: str) -> bytes:
        self.fetched.append(name)
        return packed()[1]


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """`stop()` is what SIGTERM does; `task` ends with the server."""

    gateway: Gateway
    fleet: ScriptedFleet
    server: HttpServer
    port: int
    task: "asyncio.Task[None]"

    def server_connections(self) -> frozenset[Any]:
        """Open ones, as the server has them."""
        return self.server.connections()

    async def post(self, path: str, value: Any, **headers: str) -> Reply:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return await self.request("POST", path, body, **{"content-type": "application/json", **headers})

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.request("GET", path, b"", **headers)

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        """Underscores in names stand for hyphens."""
        lines = {"host": f"127.0.0.1:{self.port}", "connection": "close"}
        lines |= {name.replace("_", "-"): value for name, value in headers.items()}
        if body or method == "POST":
            lines["content-length"] = str(len(body))
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items()) + "\r\n"
        return await self.raw(head.encode() + body)

    async def raw(self, data: bytes) -> Reply:
        """Send as it is, read to the end of the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            with suppress(ConnectionError):
                writer.write(data)
                await writer.drain()
            return parse(await asyncio.wait_for(reader.read(), WAIT_S))
        finally:
            writer.close()


def parse(data: bytes) -> Reply:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Reply(int(first.split()[1]) if first else 0, headers, body)


@asynccontextmanager
async def served(
    fleet: ScriptedFleet | None = None, config: GatewayConfig | None = None, keys: Keys | None = None,
    heard: bool = True, **fields: Any,
) -> AsyncIterator[Served]:  # fmt: skip
    """On a free port. `fields` go into the configuration. `heard` False: it does not wait for the router's word."""
    fleet = fleet or ScriptedFleet()
    config = config or GatewayConfig(port=0, drain_s=WAIT_S, **fields)
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with Gateway(config, fleet, keys) as gateway:
        server = HttpServer(gateway, lambda _host, port: ready.set_result(port))
        task = asyncio.create_task(server.run())
        await asyncio.wait((ready, task), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        await until(lambda: gateway.router is not None or not heard)
        try:
            yield Served(gateway, fleet, server, ready.result(), task)
        finally:
            server.stop()
            server.stop()
            await task


async def until(wanted: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not wanted():
            await asyncio.sleep(0.005)


def play(scene: Any) -> None:
    """A test's coroutine, within a limit."""
    asyncio.run(asyncio.wait_for(scene, 2 * WAIT_S))
