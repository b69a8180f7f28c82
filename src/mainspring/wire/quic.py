"""QUIC by qh3, both sides verified: sockets for `quic_listener` and `quic_channel`.

Idle timeout above the link's (the link decides), windows of `WINDOW_BYTES`, ALPN `mainspring/1`, no session tickets, no
0-RTT. A dialer's socket is bound to no address, so that it goes on when the machine's changes; where nothing is heard
any more while something is awaited it takes a new port, as a new path of the same connection (`DialSocket.rebind`).
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qh3.asyncio._transport import create_optimized_datagram_transport

from mainspring.wire.errors import BusyError
from mainspring.wire.keyring import Keyring
from mainspring.wire.quic_channel import LINGER_S, QuicChannel
from mainspring.wire.quic_connection import Address, FleetConnection
from mainspring.wire.quic_listener import QuicListener
from mainspring.wire.selfcheck import check_quic
from mainspring.wire.tcp import dial_error
from mainspring.wire.transport import Accept, Connection, Receiver
from mainspring.wire.trust import CHECK_S, Credentials
from mainspring.wire.watch import Watch

log = logging.getLogger(__name__)

SOCKET_BYTES = 4 << 20
SILENCE_S = 2.5
"""A dialer that hears nothing for so long while it awaits an acknowledgement takes a new port. Links ping every 2 s."""
MOST_ADDRESSES = 4
STAGGER_S = 0.25


class QuicEndpoint(asyncio.DatagramProtocol):
    """Implements `Endpoint`."""

    def __init__(self, make: Callable[[Callable[[list[bytes], Address], None]], QuicListener], watch: Watch) -> None:
        self.listener = make(self._send)
        self._watch = watch
        self._transport: Any = None
        self._address = ("", 0)

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    async def stop(self) -> None:
        await self._watch.stop(LINGER_S + 1.5)
        self.listener.abort()
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        host, port = transport.get_extra_info("sockname")[:2]
        self._address = (str(host), int(port))

    def datagrams_received(self, datagrams: list[bytes], address: Address) -> None:
        self.listener.receive(datagrams, address)

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self.listener.receive([data], addr)

    def error_received(self, exc: Exception) -> None:
        log.debug("socket: %s", exc)

    def pause_writing(self) -> None:
        self.listener.pause()

    def resume_writing(self) -> None:
        self.listener.resume()

    def _send(self, datagrams: list[bytes], address: Address) -> None:
        _send(self._transport, datagrams, address)


class DialSocket(asyncio.DatagramProtocol):
    """The socket of one dialled connection; may be changed for another while the connection lasts."""

    def __init__(self, family: int) -> None:
        self.channel: QuicChannel
        self._family = family
        self._transport: Any = None
        self._changing: asyncio.Task[None] | None = None
        self._closed = False

    async def open(self) -> None:
        sock = _socket(self._family)
        transport, _ = await create_optimized_datagram_transport(asyncio.get_running_loop(), lambda: self, sock)
        old, self._transport = self._transport, transport
        if old is not None:
            old.abort()
        if self._closed:
            transport.abort()

    def close(self) -> None:
        self._closed = True
        if self._transport is not None:
            self._transport.close()

    def rebind(self) -> None:
        """A new port: a path the router validates while the connection goes on."""
        if self._changing is None or self._changing.done():
            self._changing = asyncio.get_running_loop().create_task(self._rebind())

    async def _rebind(self) -> None:
        log.info("taking a new port towards %s", self.channel.address)
        await self.open()
        self.channel.probe_path()

    def send(self, datagrams: list[bytes], address: Address) -> None:
        _send(self._transport, datagrams, address)

    def datagrams_received(self, datagrams: list[bytes], address: Address) -> None:
        self.channel.receive(datagrams, address)

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self.channel.receive([data], addr)

    def error_received(self, exc: Exception) -> None:
        log.debug("socket: %s", exc)

    def pause_writing(self) -> None:
        self.channel.paused = True

    def resume_writing(self) -> None:
        self.channel.resume()


class QuicTransport:
    """Implements `Transport`. Arguments as `TcpTransport`'s."""

    name = "quic"

    def __init__(
        self, source: Path | Credentials, *, revoked: Path | None = None, server_name: str | None = None,
        wall_s: Callable[[], float] = time.time, check_s: float = CHECK_S,
    ) -> None:  # fmt: skip
        self.keyring = Keyring(source, revoked)
        self._server_name = server_name
        self._wall_s = wall_s
        self._check_s = check_s

    async def listen(self, host: str, port: int, accept: Accept) -> QuicEndpoint:
        check_quic()
        loop = asyncio.get_running_loop()
        watch = Watch(self.keyring, self._wall_s, self._check_s)
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = infos[0]
        sock = _socket(family, address)
        endpoint = QuicEndpoint(lambda send: QuicListener(self.keyring, loop, self._wall_s, accept, watch, send), watch)
        await create_optimized_datagram_transport(loop, lambda: endpoint, sock)
        watch.start()
        return endpoint

    async def dial(self, host: str, port: int, accept: Accept) -> Connection:
        self.keyring.refresh()
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        except OSError as error:
            raise ConnectionError(f"{host}: {error.strerror or error}") from error
        places = list(dict.fromkeys((info[0], info[4]) for info in infos))[:MOST_ADDRESSES]
        race = _Race(accept)
        tries = [
            loop.create_task(self._dial_one(family, address, host, race, delay_s=turn * STAGGER_S))
            for turn, (family, address) in enumerate(places)
        ]
        faults: list[BaseException] = []
        try:
            for done in asyncio.as_completed(tries):
                try:
                    return await done
                except (ConnectionError, BusyError) as error:
                    faults.append(error)
        finally:
            for each in tries:
                each.cancel()
        raise faults[0]

    async def _dial_one(self, family: int, address: Address, host: str, race: "_Race", *, delay_s: float) -> Connection:
        await asyncio.sleep(delay_s)
        loop = asyncio.get_running_loop()
        watch = Watch(self.keyring, self._wall_s, self._check_s)
        joined: asyncio.Future[Connection] = loop.create_future()
        udp = DialSocket(family)

        def welcome(connection: Connection) -> Receiver:
            receiver = race.accept(connection)
            joined.set_result(connection)
            return receiver

        def left(channel: QuicChannel) -> None:
            watch.close()
            udp.close()
            if not joined.done():
                joined.set_exception(dial_error(channel.lost))

        connection = FleetConnection(self.keyring, self._wall_s, server_name=self._server_name or host)
        udp.channel = channel = QuicChannel(connection, loop, udp.send, welcome, left, dialer=True)
        channel.silence = (SILENCE_S, udp.rebind)
        try:
            await udp.open()
        except OSError as error:  # no file left, a family that this host has not
            raise ConnectionError(f"{host}: {error.strerror or error}") from error
        try:
            channel.start(address)
            found = await joined
        except asyncio.CancelledError:
            channel.abort()
            raise
        watch.add(channel)
        watch.start()
        return found


class _Race:
    """Of several addresses of one router the first to answer is taken."""

    def __init__(self, accept: Accept) -> None:
        self._accept = accept
        self._won = False

    def accept(self, connection: Connection) -> Receiver:
        if self._won:
            raise BusyError("another address was faster")
        self._won = True
        return self._accept(connection)


def _socket(family: int, address: Address | None = None) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        if address is None:
            address = ("::", 0) if family == socket.AF_INET6 else ("0.0.0.0", 0)  # noqa: S104 - any, see above
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _send(transport: Any, datagrams: list[bytes], address: Address) -> None:
    if transport is None:
        return
    many = getattr(transport, "sendto_many", None)  # not where qh3 has no optimised transport
    if many is not None:
        many(datagrams, address)
    else:
        for data in datagrams:
            transport.sendto(data, address)
