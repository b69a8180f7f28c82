"""QUIC and TCP on real sockets: the same promises, kept by both."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from mainspring.wire import guests
from mainspring.wire.errors import BusyError, Close, IdentityError, SelfCheckError
from mainspring.wire.pki_files import PkiFolder
from mainspring.wire.quic import QuicTransport
from mainspring.wire.quic_channel import QuicChannel
from mainspring.wire.tcp import TcpTransport
from mainspring.wire.tcp_connection import TcpConnection
from mainspring.wire.transport import HIGH_BYTES, STUCK_BYTES, Connection
from mainspring.wire.trust import Credentials
from support import fleet_pki as pki
from support.ears import Door, Ear, until

TRANSPORTS = {"tcp": TcpTransport, "quic": QuicTransport}
AnyTransport = type[TcpTransport] | type[QuicTransport]
ROUTER, NODE = Credentials.of(pki.ROUTER), Credentials.of(pki.NODE)


@pytest.fixture(params=TRANSPORTS)
def kind(request: pytest.FixtureRequest) -> AnyTransport:
    return TRANSPORTS[request.param]


def run(body: Coroutine[Any, Any, None]) -> None:
    """Then no socket may be left open on either side."""

    async def whole() -> None:
        selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
        await asyncio.wait_for(body, 120.0)
        await until(lambda: len(selector.get_map()) == 1)  # the loop's own

    asyncio.run(whole())


def test_streams_of_any_size_go_there_and_back(kind: AnyTransport) -> None:
    async def body() -> None:
        door, ear = Door(), Ear()
        endpoint = await kind(ROUTER).listen("127.0.0.1", 0, door.accept)
        near = await kind(NODE).dial(*endpoint.address, ear.accept)
        assert (near.dialer, near.transport, near.peer.role) == (True, kind.name, "router")
        sent = {0: b"", 4: b"x", 8: os.urandom(36_000), 12: os.urandom(3 << 20), 16: os.urandom((16 << 20) + 8)}
        for stream, data in sent.items():
            near.write(stream, data, end=True)
        await until(lambda: len(ear.ended) == len(sent))
        assert {stream: bytes(data) for stream, data in ear.data.items()} == sent
        assert door.ears[0].connection.peer.name == "ant"
        assert not door.ears[0].connection.dialer
        assert near.backlog_bytes == 0
        await endpoint.stop()
        assert [lost.close for lost in door.ears[0].lost] == [Close.GOODBYE]
        await until(lambda: ear.lost)
        assert ear.lost[0].remote

    run(body())


def test_a_small_message_overtakes_a_large_one(kind: AnyTransport) -> None:
    async def body() -> None:
        door, ear = Door(None), Ear()
        endpoint = await kind(ROUTER).listen("127.0.0.1", 0, door.accept)
        near = await kind(NODE).dial(*endpoint.address, ear.accept)
        near.write(0, b"hello")
        near.write(4, bytes(16 << 20), end=True)
        near.write(0, b"ping")
        await until(lambda: door.ears and bytes(door.ears[0].data.get(0, b"")) == b"helloping")
        assert 4 not in door.ears[0].ended
        await until(lambda: 4 in door.ears[0].ended)
        await endpoint.stop()

    run(body())


def test_both_sides_open_streams_and_more_than_a_link_allows(kind: AnyTransport) -> None:
    async def body() -> None:
        door, ear = Door(None), Ear(lambda here, stream, _data: here.connection.write(stream, b"done", end=True))
        endpoint = await kind(ROUTER).listen("127.0.0.1", 0, door.accept)
        near = await kind(NODE).dial(*endpoint.address, ear.accept)
        near.write(0, b"hello")
        await until(lambda: door.ears and door.ears[0].data)
        far = door.ears[0].connection
        count = 3000
        for number in range(count):
            far.write(1 + 4 * number, b"work %d" % number)
        await until(lambda: len(ear.data) >= 1024)
        for number in range(count):
            far.write(1 + 4 * number, b"!", end=True)
        await until(lambda: len(ear.ended) == len(door.ears[0].ended) == count)
        assert bytes(ear.data[1 + 4 * 2999]) == b"work 2999!"
        assert far.backlog_bytes == 0
        await endpoint.stop()

    run(body())


@pytest.mark.parametrize("dialer_closes", [True, False])
def test_what_was_written_before_a_close_arrives_with_its_code(kind: AnyTransport, dialer_closes: bool) -> None:
    async def body() -> None:
        door, ear = Door(None), Ear()
        endpoint = await kind(ROUTER).listen("127.0.0.1", 0, door.accept)
        near = await kind(NODE).dial(*endpoint.address, ear.accept)
        near.write(0, b"hello")
        await until(lambda: door.ears and door.ears[0].data)
        far = door.ears[0].connection
        here, there, other = (near, ear, door.ears[0]) if dialer_closes else (far, door.ears[0], ear)
        here.write(0, bytes(200_000))
        here.close(Close.DRAINED, "enough")
        here.write(0, b"too late")
        assert not there.lost  # never from within a call
        await until(lambda: there.lost and other.lost)
        assert [(lost.close, lost.message, lost.remote) for lost in there.lost] == [(Close.DRAINED, "enough", False)]
        assert [(lost.close, lost.message, lost.remote) for lost in other.lost] == [(Close.DRAINED, "enough", True)]
        assert len(other.data[0]) == 200_000 + (5 if dialer_closes else 0)
        await endpoint.stop()

    run(body())


def test_a_backlog_is_told_and_bounded(kind: AnyTransport) -> None:
    async def body() -> None:
        door, ear = Door(None), Ear()
        endpoint = await kind(ROUTER).listen("127.0.0.1", 0, door.accept)
        near = await kind(NODE).dial(*endpoint.address, ear.accept)
        near.write(0, bytes(HIGH_BYTES + 1))
        assert near.backlog_bytes >= HIGH_BYTES
        await until(lambda: ear.could_write == 1)
        near.write(0, bytes(STUCK_BYTES))
        near.write(0, b"one more")
        await until(lambda: ear.lost)
        assert ear.lost[0].close is Close.LIMIT
        await endpoint.stop()

    run(body())


def test_a_listener_may_turn_a_verified_peer_away(kind: AnyTransport) -> None:
    def refuse(_connection: Connection) -> Ear:
        raise BusyError("full")

    async def body() -> None:
        ear = Ear()
        endpoint = await kind(ROUTER).listen("127.0.0.1", 0, refuse)
        await kind(NODE).dial(*endpoint.address, ear.accept)
        await until(lambda: ear.lost)
        assert (ear.lost[0].close, ear.lost[0].message, ear.lost[0].remote) == (Close.BUSY, "full", True)
        await endpoint.stop()

    run(body())


@pytest.mark.parametrize("shown", [pki.ROGUE, pki.EXPIRED, pki.WRONG_USE], ids=["another CA", "expired", "wrong use"])
def test_who_is_refused_is_told_that_it_is_about_the_certificate(kind: AnyTransport, shown: pki.Issued) -> None:
    async def body() -> None:
        door, ear = Door(), Ear()
        endpoint = await kind(ROUTER).listen("127.0.0.1", 0, door.accept)
        transport = kind(NODE)
        transport.keyring = pki.showing(shown)
        near = await transport.dial(*endpoint.address, ear.accept)
        near.write(0, b"hello")  # it believes itself connected
        await until(lambda: ear.lost)
        assert (ear.lost[0].close, ear.lost[0].remote) == (Close.CERTIFICATE, True)
        assert not door.ears
        await endpoint.stop()

    run(body())


def test_a_router_that_is_not_ours_is_an_identity_error(kind: AnyTransport) -> None:
    async def body() -> None:
        endpoint = await kind(ROUTER).listen("127.0.0.1", 0, Door().accept)
        rogue = Credentials.of(pki.THEIRS.issue("node", "ant", pki.NOW_S))
        with pytest.raises(IdentityError):
            await kind(rogue).dial(*endpoint.address, Ear().accept)
        with pytest.raises(IdentityError):
            await kind(NODE, server_name="another.test").dial(*endpoint.address, Ear().accept)
        near = await kind(NODE, server_name=pki.HOST).dial(*endpoint.address, Ear().accept)
        assert near.peer.name == "hill"
        await endpoint.stop()

    run(body())


def test_nobody_there_is_a_connection_error(kind: AnyTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.wire.quic_channel.HANDSHAKE_S", 0.5)

    async def body() -> None:
        endpoint = await kind(ROUTER).listen("127.0.0.1", 0, Door().accept)
        await endpoint.stop()
        with pytest.raises(ConnectionError):
            await kind(NODE).dial(*endpoint.address, Ear().accept)
        with pytest.raises(ConnectionError):
            await kind(NODE).dial("no-such-host.invalid", 1, Ear().accept)

    run(body())


def test_no_port_is_opened_when_the_self_check_fails(kind: AnyTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise SelfCheckError("wrong")

    monkeypatch.setattr(f"mainspring.wire.{kind.name}.check_{kind.name}", fail)

    async def body() -> None:
        with pytest.raises(SelfCheckError):
            await kind(ROUTER).listen("127.0.0.1", 0, Door().accept)

    run(body())


# ------------------------------------------------------------------ certificates while a connection lasts


@pytest.fixture
def folder(tmp_path: Path) -> PkiFolder:
    made = PkiFolder.create(tmp_path / "pki", "fleet", pki.NOW_S)
    made.issue("router", "hill", pki.NOW_S)
    made.issue("node", "ant", pki.NOW_S)
    made.issue("node", "bee", pki.NOW_S)
    return made


def test_a_revoked_certificate_ends_its_connection_and_no_other(kind: AnyTransport, folder: PkiFolder) -> None:
    async def body() -> None:
        door, ant, bee = Door(), Ear(), Ear()
        transport = kind(folder.path / "router-hill", check_s=0.05)
        endpoint = await transport.listen("127.0.0.1", 0, door.accept)
        for name, ear in (("ant", ant), ("bee", bee)):
            near = await kind(folder.path / f"node-{name}").dial(*endpoint.address, ear.accept)
            near.write(0, b"hello")
        await until(lambda: len(door.ears) == 2)
        folder.revoke("node", "ant", pki.NOW_S + 1)
        await until(lambda: ant.lost)
        assert (ant.lost[0].close, ant.lost[0].remote) == (Close.CERTIFICATE, True)
        await asyncio.sleep(0.2)
        assert not bee.lost
        again = Ear()
        near = await kind(folder.path / "node-ant").dial(*endpoint.address, again.accept)
        near.write(0, b"hello")
        await until(lambda: again.lost)
        assert again.lost[0].close is Close.CERTIFICATE
        await endpoint.stop()

    run(body())


@pytest.mark.parametrize("expires_at", ["router", "node"])
def test_a_certificate_that_expires_ends_its_connection(kind: AnyTransport, expires_at: str) -> None:
    """Seen by either side's own wall clock."""

    async def body() -> None:
        door, ear, clocks = Door(), Ear(), {"router": pki.NOW_S, "node": pki.NOW_S}
        router = kind(ROUTER, wall_s=lambda: clocks["router"], check_s=0.05)
        endpoint = await router.listen("127.0.0.1", 0, door.accept)
        node = kind(NODE, wall_s=lambda: clocks["node"], check_s=0.05)
        near = await node.dial(*endpoint.address, ear.accept)
        near.write(0, b"hello")
        await until(lambda: door.ears and door.ears[0].data)
        await asyncio.sleep(0.2)
        assert not ear.lost
        clocks[expires_at] += 91 * pki.DAY_S
        await until(lambda: ear.lost and door.ears[0].lost)
        assert ear.lost[0].close is door.ears[0].lost[0].close is Close.CERTIFICATE
        await endpoint.stop()

    run(body())


def test_a_transport_looks_at_least_twice_a_minute_unless_told_otherwise(kind: AnyTransport) -> None:
    assert kind(ROUTER)._check_s <= 30.0


def test_renewed_certificates_are_taken_up_without_a_restart(kind: AnyTransport, folder: PkiFolder) -> None:
    async def body() -> None:
        door = Door()
        transport = kind(folder.path / "router-hill", check_s=0.05)
        endpoint = await transport.listen("127.0.0.1", 0, door.accept)
        node = kind(folder.path / "node-ant")
        first = await node.dial(*endpoint.address, Ear().accept)
        folder.issue("router", "hill", pki.NOW_S)
        folder.issue("node", "ant", pki.NOW_S)
        await asyncio.sleep(0.3)
        second = await node.dial(*endpoint.address, Ear().accept)
        second.write(0, b"hello")
        await until(lambda: len(door.ears) == 2 and door.ears[1].data)
        assert first.peer.serial != second.peer.serial
        serials = [ear.connection.peer.serial for ear in door.ears]
        assert serials[0] != serials[1]
        await endpoint.stop()

    run(body())


# ------------------------------------------------------------------ a new port of the same node


def test_a_quic_connection_goes_on_from_a_new_socket() -> None:
    async def body() -> None:
        door, ear = Door(), Ear()
        endpoint = await QuicTransport(ROUTER).listen("127.0.0.1", 0, door.accept)
        near = await QuicTransport(NODE).dial(*endpoint.address, ear.accept)
        assert isinstance(near, QuicChannel)
        near.write(0, b"hello")
        await until(lambda: door.ears and door.ears[0].data)
        before = door.ears[0].connection.address
        data = os.urandom(4 << 20)
        near.write(4, data, end=True)
        await asyncio.sleep(0.01)
        assert near.silence is not None
        near.silence[1]()  # what a silence calls
        await until(lambda: 4 in ear.ended)
        assert bytes(ear.data[4]) == data
        assert door.ears[0].connection.address != before
        assert len(door.ears) == 1
        assert not ear.lost
        await endpoint.stop()

    run(body())


def test_a_silent_path_is_left_for_a_new_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a NAT that forgot its mapping: what the old port sends and hears goes nowhere."""
    monkeypatch.setattr("mainspring.wire.quic.SILENCE_S", 0.3)

    async def body() -> None:
        door, ear = Door(), Ear()
        endpoint = await QuicTransport(ROUTER).listen("127.0.0.1", 0, door.accept)
        near = await QuicTransport(NODE).dial(*endpoint.address, ear.accept)
        assert isinstance(near, QuicChannel)
        near.write(0, b"hello")
        await until(lambda: door.ears and door.ears[0].data)
        dead: list[int] = []
        first = door.ears[0].connection.address
        receive = endpoint.listener.receive

        def nat(datagrams: list[bytes], address: tuple[Any, ...]) -> None:
            if f"{address[0]}:{address[1]}" == first:
                dead.append(len(datagrams))
            else:
                receive(datagrams, address)

        endpoint.listener.receive = nat  # type: ignore[method-assign]
        near.write(4, b"are you there?", end=True)
        await until(lambda: 4 in ear.ended)
        assert dead
        assert door.ears[0].connection.address != first
        await endpoint.stop()

    run(body())


def test_a_receiver_that_fails_loses_its_own_connection_only(kind: AnyTransport) -> None:
    def fail(_ear: Ear, _stream: int, data: bytes) -> None:
        if data == b"poison":
            raise RuntimeError("a fault of the shell")

    async def body() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        door, poisoned, other = Door(fail), Ear(), Ear()
        endpoint = await kind(ROUTER).listen("127.0.0.1", 0, door.accept)
        first = await kind(NODE).dial(*endpoint.address, poisoned.accept)
        second = await kind(NODE).dial(*endpoint.address, other.accept)
        first.write(0, b"poison", end=True)
        await until(lambda: poisoned.lost)
        second.write(0, b"fine", end=True)
        await until(lambda: any(ear.ended == [0] and bytes(ear.data[0]) == b"fine" for ear in door.ears))
        assert not other.lost
        await endpoint.stop()

    run(body())


def test_a_dial_that_is_given_up_leaves_nothing_behind(kind: AnyTransport) -> None:
    async def body() -> None:
        async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()

        hole = await asyncio.start_server(swallow, "127.0.0.1", 0)
        port = hole.sockets[0].getsockname()[1]
        ear = Ear()
        dialling = asyncio.get_running_loop().create_task(kind(NODE).dial("127.0.0.1", port, ear.accept))
        await asyncio.sleep(0.2)
        dialling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling
        assert not hasattr(ear, "connection")
        hole.close()

    run(body())


# ------------------------------------------------------------------ limits


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
