"""A QUIC dialer and a listener in virtual time: datagrams are lost, doubled, delayed and overtaken as a seed says."""

from collections.abc import Callable
from random import Random

from mainspring.wire.quic_channel import QuicChannel
from mainspring.wire.quic_connection import Address, FleetConnection
from mainspring.wire.quic_listener import QuicListener
from mainspring.wire.transport import Connection, Receiver
from support.ears import Door, Ear, echo
from support.fleet_pki import HOST, NODE, NOW_S, ROUTER, ring
from support.links import World

NODE_AT: Address = ("192.0.2.1", 1111)
ROUTER_AT: Address = ("192.0.2.2", 443)


class Handle:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualClock:
    """`quic_channel.Clock` on a World."""

    def __init__(self, world: World) -> None:
        self.world = world

    def time(self) -> float:
        return self.world.now_s

    def call_at(self, when: float, callback: Callable[[], object], /) -> Handle:
        handle = Handle()
        self.world.call_later(
            max(0.0, when - self.world.now_s),
            lambda: None if handle.cancelled else callback(),  # type: ignore[func-returns-value]
        )
        return handle

    def call_soon(self, callback: Callable[[], object], /) -> Handle:
        return self.call_at(self.world.now_s, callback)


class NoWatch:
    def add(self, _connection: object) -> None: ...

    def discard(self, _connection: object) -> None: ...


class Weather:
    """Of both directions; may be changed at any time."""

    def __init__(self, seed: int = 0, *, loss: float = 0.0, double: float = 0.0, delay_s: float = 0.01,
                 spread_s: float = 0.0, junk: float = 0.0) -> None:  # fmt: skip
        self.random = Random(seed)
        self.loss, self.double, self.delay_s, self.spread_s, self.junk = loss, double, delay_s, spread_s, junk
        self.up = True

    def carry(self, data: bytes) -> list[tuple[float, bytes]]:
        """(delay, datagram) for each that arrives."""
        copies = 0 if not self.up or self.random.random() < self.loss else 1 + (self.random.random() < self.double)
        arrivals = [(self.delay_s + self.random.random() * self.spread_s, data) for _ in range(copies)]
        if self.random.random() < self.junk:
            spoiled = bytearray(data)
            spoiled[self.random.randrange(len(data))] ^= 1 + self.random.randrange(255)
            arrivals.append((self.delay_s, bytes(spoiled)))
        return arrivals


class QuicRig:
    def __init__(self, weather: Weather | None = None, *, answer: Callable[[Ear, int, bytes], None] | None = echo,
                 node: Ear | None = None, key_datagrams: int = 1 << 21, retry_from: int = 32) -> None:  # fmt: skip
        self.world = World()
        self.clock = VirtualClock(self.world)
        self.weather = weather or Weather()
        self.node_at = NODE_AT
        self.door, self.ear = Door(answer), node or Ear()
        self.gone: list[QuicChannel] = []
        self.to_router: list[bytes] = []
        self.listener = QuicListener(
            ring(ROUTER), self.clock, lambda: NOW_S, self.door.accept, NoWatch(),  # type: ignore[arg-type]
            self._from_router, retry_from=retry_from,
        )  # fmt: skip
        connection = FleetConnection(ring(NODE), lambda: NOW_S, server_name=HOST)
        self.near = QuicChannel(
            connection, self.clock, self._from_node, self._joined, self.gone.append, dialer=True,
            key_datagrams=key_datagrams,
        )  # fmt: skip
        self.joined = False

    def start(self) -> "QuicRig":
        self.near.start(ROUTER_AT)
        return self

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now_s + seconds)

    def until(self, condition: Callable[[], object], within_s: float = 60.0) -> None:
        end_s = self.world.now_s + within_s
        while not condition():
            assert self.world.now_s < end_s, "it never came true"
            self.run(0.05)

    @property
    def far(self) -> Connection:
        return self.door.ears[0].connection

    def _joined(self, connection: Connection) -> Receiver:
        self.joined = True
        return self.ear.accept(connection)

    def _from_node(self, datagrams: list[bytes], _address: Address) -> None:
        source = self.node_at
        self.to_router += datagrams
        for data in datagrams:
            for delay_s, arriving in self.weather.carry(data):
                self.world.call_later(delay_s, lambda d=arriving: self.listener.receive([d], source))  # type: ignore[misc]

    def _from_router(self, datagrams: list[bytes], address: Address) -> None:
        for data in datagrams:
            for delay_s, arriving in self.weather.carry(data):
                self.world.call_later(delay_s, lambda d=arriving: self._arrive(d, address))  # type: ignore[misc]

    def _arrive(self, data: bytes, address: Address) -> None:
        if address == self.node_at:  # what goes to an address that the node has left is lost
            self.near.receive([data], ROUTER_AT)
