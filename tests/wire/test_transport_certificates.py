"""Revoked, expired, renewed while a connection lasts; a new port of the same node. Real sockets."""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from mainspring.wire.errors import Close
from mainspring.wire.pki_files import PkiFolder
from mainspring.wire.quic import QuicTransport
from mainspring.wire.quic_channel import QuicChannel
from mainspring.wire.tcp import TcpTransport
from mainspring.wire.trust import Credentials
from support import fleet_pki as pki
from support.ears import Door, Ear, run, until
from support.faults import WORDS

TRANSPORTS = {"tcp": TcpTransport, "quic": QuicTransport}
AnyTransport = type[TcpTransport] | type[QuicTransport]
ROUTER, NODE = Credentials.of(pki.ROUTER), Credentials.of(pki.NODE)


@pytest.fixture(params=TRANSPORTS)
def kind(request: pytest.FixtureRequest) -> AnyTransport:
    return TRANSPORTS[request.param]


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


def test_a_receiver_that_fails_loses_its_own_connection_only(
    kind: AnyTransport, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_ear: Ear, _stream: int, data: bytes) -> None:
        if data == b"poison":
            raise RuntimeError(WORDS)

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
    assert WORDS not in caplog.text  # what quotes bytes quotes a conversation


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
