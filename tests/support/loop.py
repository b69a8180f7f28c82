"""The real shell on a real event loop over memory networks: for what is asyncio's, not for what is logic."""

import asyncio

from mainspring.fleet import clock
from mainspring.fleet.bundles import BundleCache
from mainspring.fleet.driver import Driver
from mainspring.fleet.settings import Settings
from mainspring.fleet.shell import Shell
from mainspring.wire.errors import Close
from mainspring.wire.memory import Network, connect
from mainspring.wire.transport import Accept, Connection, Identity
from support.packed import by_beginning

ROUTER = Identity("fleet", "router", "hill")


class Hub:
    """A router in this process, and a `dial` for whoever is `identity`. `down`: nobody answers."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.networks: list[Network] = []
        self.down = False
        self.lives = 0
        self.boot()

    def boot(self) -> None:
        self.lives += 1
        self.shell = Shell(self.settings, self.lives, clock.now_s(), BundleCache(check=by_beginning))
        self.driver = Driver(self.shell, clock.now_s, asyncio.get_running_loop().call_later)

    def restart(self) -> None:
        for peer in [*self.shell.book.peers]:
            peer.connection.close(Close.LOST, "")
        self.boot()

    def dialer(self, role: str, name: str) -> "Dial":
        return Dial(self, Identity("fleet", role, name))  # type: ignore[arg-type]


class Dial:
    def __init__(self, hub: Hub, identity: Identity) -> None:
        self.hub, self.identity = hub, identity

    async def dial(self, _host: str, _port: int, accept: Accept) -> Connection:
        if self.hub.down:
            raise ConnectionError("nobody answers")
        network = Network(asyncio.get_running_loop().call_later)
        self.hub.networks.append(network)
        connection, _ = connect(network, self.identity, ROUTER, accept, self.hub.driver.accept)
        return connection


class LoopWorld:
    """What `support.fleet` calls a world, on the running loop: virtual nodes in real time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    @property
    def now_s(self) -> float:
        return clock.now_s()

    def call_later(self, delay_s: float, function: object) -> None:
        self._loop.call_later(delay_s, function)  # type: ignore[arg-type]


class LoopFleet:
    """Stands in for `support.fleet.Fleet` around a hub."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.world = LoopWorld()
        self.delay_s = 0.0

    @property
    def driver(self) -> Driver:
        return self.hub.driver

    @property
    def shell(self) -> Shell:
        return self.hub.shell
