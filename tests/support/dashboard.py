"""A gateway with its real routes and socket before a fleet that is made up: the router's status is a script, scores are
logits that a test chooses. `Served` runs it on a thread of its own, as a browser needs.
"""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mainspring.core.cost import Cost
from mainspring.core.nouns import Limits
from mainspring.gateway.config import GatewayConfig, GatewayLimits
from mainspring.gateway.keys import Keys
from mainspring.gateway.server import HttpServer
from mainspring.gateway.service import Gateway
from mainspring.hub import EMBEDDED, model_folder
from mainspring.text.bundle import Bundle
from mainspring.wire import messages as m

MODEL = "ab" * 32
LONGEST_S = 60.0


def node(name: str = "ant", **fields: object) -> m.NodeStatus:
    given = {
        "model": MODEL, "epoch": 1, "state": "ready", "numerics": "fp32", "cost": Cost(0.004, 1e-5, 2e-5),
        "heard_s": 0.1, "idle_s": 0.2, "device": "a device", "transport": "quic", "round_trip_s": 0.0005, "keys": 12,
        "passes": 1234, "busy_share": 0.25, "predicted_error": 0.031,
    }  # fmt: skip
    return m.NodeStatus(name=name, **given | fields)  # type: ignore[arg-type]


def ended(number: int, name: str = "ant", *, predicted_s: float = 0.02, measured_s: float = 0.021, ago_s: float = 2.0,
          tokens: int = 1000) -> m.PassStatus:  # fmt: skip
    return m.PassStatus(
        node=name, pass_id=number, ago_s=ago_s, predicted_s=predicted_s, measured_s=measured_s, parts=2, tokens=tokens
    )


def classes(p99_s: float = 0.7) -> tuple[m.ClassStatus, ...]:
    return (
        m.ClassStatus(name="batch", priority=0, p50_s=2.0, p99_s=9.0, answered=30),
        m.ClassStatus(name="interactive", priority=2, target_s=1.0, p50_s=0.18, p99_s=p99_s, answered=290, late=4,
                      refused={"contention": 41}),
        m.ClassStatus(name="standard", priority=1, target_s=10.0),
    )  # fmt: skip


class FakeFleet:
    """`change(status)` may replace what the router says; `logits(branches)` what a score is; `fault` is raised."""

    def __init__(self, bundle: Bundle | None = None) -> None:
        self.connected = True
        self.nodes: tuple[m.NodeStatus, ...] = (node("ant"), node("bee", state="busy", transport="tcp"))
        self.passes: tuple[m.PassStatus, ...] = ()
        self.classes = classes()
        self.counters: dict[str, float] = {"answered": 100.0, "refused": 3.0, "failed": 0.0, "open": 2.0}
        self.up_s = 50.0
        self.totals = m.Totals()
        self.draining = False
        self.logits: Callable[[int], np.ndarray] = lambda branches: np.tile([2.0, 0.5, -1.0], (branches, 1))
        self.fault: Exception | None = None
        self.hold: asyncio.Event | None = None
        self.cancelled = 0
        self.submits: list[m.Submit] = []
        self._bundle = bundle

    async def score(self, submit: m.Submit, accepted: Callable[[float], None] | None = None) -> m.Result:
        self.submits.append(submit)
        if self.fault is not None:
            raise self.fault
        if accepted is not None:
            accepted(0.030)
        try:
            if self.hold is not None:
                await self.hold.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        rows = self.logits(len(submit.branch_lengths) // 4)
        return m.Result(logits=np.asarray(rows, "<f4").tobytes(), queue_s=0.002, device_s=0.021, total_s=0.024,
                        nodes=("ant",))  # fmt: skip

    async def status(self, passes: int = 0) -> m.Status:
        self.up_s += 1.0
        models = (
            m.ModelStatus(model=MODEL, aliases=("tiny",), bundle=self._hash(), limits=Limits(view_tokens=4096),
                          numerics=("fp32",), nodes=len(self.nodes), usable=len(self.nodes), queued=5),
        ) if self.nodes else ()  # fmt: skip
        return m.Status(
            router=7, up_s=self.up_s, version="9.8.7", draining=self.draining, models=models, nodes=self.nodes,
            classes=self.classes, passes=self.passes[-passes:], counters=dict(self.counters), payload_bytes=2048,
            clients=1, totals=self.totals,
        )  # fmt: skip

    async def bundle(self, name: str) -> bytes:
        assert self._bundle is not None
        assert name == self._bundle.hash
        return self._bundle.pack()

    def _hash(self) -> str:
        return self._bundle.hash if self._bundle is not None else "cd" * 32


def embedded_bundle() -> Bundle:
    return Bundle.load(model_folder(EMBEDDED))


class Served:
    """`with Served(fleet) as served:` the gateway at `served.url`, drained at the end."""

    def __init__(self, fleet: FakeFleet, *, port: int = 0, keys: Path | None = None, **limits: object) -> None:
        self.fleet = fleet
        self._config = GatewayConfig(
            port=port, drain_s=5.0, limits=GatewayLimits(**limits), keys="" if keys is None else str(keys)
        )  # type: ignore[arg-type]
        self._keys = None if keys is None else Keys.read(keys)
        self._up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="served")
        self._fault: BaseException | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def __enter__(self) -> "Served":
        self._thread.start()
        assert self._up.wait(LONGEST_S), "the gateway did not start"
        if self._fault is not None:
            raise self._fault
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Drained and gone."""
        if self._thread.is_alive():
            self.call(self.server.stop)
        self._thread.join(LONGEST_S)
        assert not self._thread.is_alive(), "the gateway did not stop"

    def call(self, function: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(function)

    async def _run(self) -> None:
        try:
            self._loop = asyncio.get_running_loop()
            async with Gateway(self._config, self.fleet, self._keys) as gateway:
                self.gateway = gateway
                self.server = HttpServer(gateway, self._listening)
                await self.server.run()
        except BaseException as error:
            self._fault = error
            self._up.set()
            raise

    def _listening(self, _host: str, port: int) -> None:
        self.port = port
        self._up.set()
