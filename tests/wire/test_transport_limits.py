"""What a port takes, and what it does with rubbish, slow peers and failing shells. Real sockets."""

import asyncio
import logging
import os
from typing import Any

import pytest

from mainspring.wire import guests
from mainspring.wire.errors import Close
from mainspring.wire.quic import QuicTransport
from mainspring.wire.tcp import TcpTransport
from mainspring.wire.tcp_connection import TcpConnection
from mainspring.wire.trust import Credentials
from support import fleet_pki as pki
from support.ears import Door, Ear, run, until

TRANSPORTS = {"tcp": TcpTransport, "quic": QuicTransport}
AnyTransport = type[TcpTransport] | type[QuicTransport]
ROUTER, NODE = Credentials.of(pki.ROUTER), Credentials.of(pki.NODE)


@pytest.fixture(params=TRANSPORTS)
def kind(request: pytest.FixtureRequest) -> AnyTransport:
    return TRANSPORTS[request.param]


def test_open_handshakes_are_counted_by_address(
    kind: AnyTransport, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guests, "HANDSHAKES_OF_ADDRESS", 3)
    for module in ("tcp", "quic_listener"):
        monkeypatch.setattr(f"mainspring.wire.{module}.Guests", lambda: guests.Guests(of_address=3))

    async def body() -> None:
        endpoint = await kind(ROUTER).listen("127.0.0.1", 0, Door().accept)
        if kind is TcpTransport:
            idle = [await asyncio.open_connection(*endpoint.address) for _ in range(4)]
            await until(lambda: "handshakes of this address" in caplog.text)
            assert await idle[3][0].read() == b""
            for _, writer in idle:
                writer.close()
        else:
            listener = endpoint.listener  # type: ignore[union-attr]
            for number in range(4):
                _first_flight(listener, number)
            assert listener.channels == 3
            assert "handshakes of this address" in caplog.text
        await endpoint.stop()

    with caplog.at_level(logging.WARNING):
        run(body())


def _first_flight(listener: Any, number: int) -> None:
    from mainspring.wire.quic_connection import FleetConnection

    left = FleetConnection(pki.ring(pki.NODE), lambda: pki.NOW_S, server_name=pki.HOST)
    left.connect(("192.0.2.2", 2), 0.0)
    listener.receive([data for data, _ in left.datagrams_to_send(0.0)], ("127.0.0.9", 1000 + number))


def test_a_handshake_that_does_not_come_is_not_waited_for(kind: AnyTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.wire.tcp_connection.HANDSHAKE_S", 0.2)
    monkeypatch.setattr("mainspring.wire.quic_channel.HANDSHAKE_S", 0.2)

    async def body() -> None:
        endpoint = await kind(ROUTER).listen("127.0.0.1", 0, Door().accept)
        if kind is TcpTransport:
            reader, writer = await asyncio.open_connection(*endpoint.address)
            assert await reader.read() == b""
            writer.close()
        else:
            listener = endpoint.listener  # type: ignore[union-attr]
            _first_flight(listener, 0)
            assert listener.channels == 1
            await until(lambda: listener.channels == 0)
            assert listener.guests.open_handshakes == 0
            assert not listener._routes
        await endpoint.stop()

    run(body())


@pytest.mark.parametrize("junk", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n", os.urandom(5000), bytes(1300)])
def test_rubbish_on_the_port_harms_nobody(kind: AnyTransport, junk: bytes) -> None:
    async def body() -> None:
        door, ear = Door(), Ear()
        endpoint = await kind(ROUTER).listen("127.0.0.1", 0, door.accept)
        if kind is TcpTransport:
            _, writer = await asyncio.open_connection(*endpoint.address)
            writer.write(junk)
            await writer.drain()
            writer.close()
        else:
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                asyncio.DatagramProtocol, remote_addr=endpoint.address
            )
            for start in range(0, len(junk), 1300):
                transport.sendto(junk[start : start + 1300])
            transport.close()
        near = await kind(NODE).dial(*endpoint.address, ear.accept)
        near.write(0, b"hello", end=True)
        await until(lambda: ear.ended)
        await endpoint.stop()

    run(body())


@pytest.mark.parametrize("junk", [os.urandom(3000), b"\0" * 3000, b"\xff" * 8, b"\2\0\0\0\0\0\0\0"])
def test_a_verified_peer_that_sends_rubbish_on_tcp_is_told_so(junk: bytes) -> None:
    async def body() -> None:
        door, ear = Door(None), Ear()
        endpoint = await TcpTransport(ROUTER).listen("127.0.0.1", 0, door.accept)
        near = await TcpTransport(NODE).dial(*endpoint.address, ear.accept)
        assert isinstance(near, TcpConnection)
        near._channel.write(junk)
        near._send_raw()
        near.write(2, b"a stream of a kind that is not")
        await until(lambda: ear.lost)
        assert (ear.lost[0].close, ear.lost[0].remote) == (Close.PROTOCOL, True)
        assert [lost.close for lost in door.ears[0].lost] == [Close.PROTOCOL]
        await endpoint.stop()

    run(body())
