"""QUIC and TCP on real sockets: the same promises, kept by both."""

import asyncio
import os

import pytest

from mainspring.wire.errors import BusyError, Close, IdentityError, SelfCheckError
from mainspring.wire.quic import QuicTransport
from mainspring.wire.tcp import TcpTransport
from mainspring.wire.tcp_connection import TcpConnection
from mainspring.wire.transport import HIGH_BYTES, STUCK_BYTES, Connection, Lost
from mainspring.wire.trust import Credentials
from support import fleet_pki as pki
from support.ears import Door, Ear, run, until

TRANSPORTS = {"tcp": TcpTransport, "quic": QuicTransport}
AnyTransport = type[TcpTransport] | type[QuicTransport]
ROUTER, NODE = Credentials.of(pki.ROUTER), Credentials.of(pki.NODE)


@pytest.fixture(params=TRANSPORTS)
def kind(request: pytest.FixtureRequest) -> AnyTransport:
    return TRANSPORTS[request.param]


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


@pytest.mark.parametrize("dialer_closes", [True, False])
def test_an_owner_that_closes_tcp_hears_of_the_end_after_the_peer_has_its_last_words(dialer_closes: bool) -> None:
    """A process that ended before would take them with it."""

    async def body() -> None:
        order: list[str] = []

        class Noting(Ear):
            def connection_lost(self, lost: Lost) -> None:
                order.append("peer" if lost.remote else "owner")
                super().connection_lost(lost)

        door, ear = Door(None), Noting()

        def accept(connection: Connection) -> Ear:
            there = Noting()
            door.ears.append(there)
            return there.accept(connection)

        endpoint = await TcpTransport(ROUTER).listen("127.0.0.1", 0, accept)
        near = await TcpTransport(NODE).dial(*endpoint.address, ear.accept)
        near.write(0, b"hello")
        await until(lambda: door.ears and door.ears[0].data)
        here = near if dialer_closes else door.ears[0].connection
        here.write(0, bytes(3 << 20))
        here.close(Close.GOODBYE, "enough")
        await until(lambda: len(order) == 2)
        assert order == ["peer", "owner"]
        await endpoint.stop()

    run(body())


def test_an_owner_that_closes_towards_a_peer_that_does_not_answer_hears_of_it_all_the_same() -> None:
    async def body() -> None:
        door, ear = Door(None), Ear()
        endpoint = await TcpTransport(ROUTER).listen("127.0.0.1", 0, door.accept)
        near = await TcpTransport(NODE).dial(*endpoint.address, ear.accept)
        near.write(0, b"hello")
        await until(lambda: door.ears and door.ears[0].data)
        far = door.ears[0].connection
        assert isinstance(far, TcpConnection)
        far._socket.pause_reading()
        near.close(Close.GOODBYE, "enough")
        await until(lambda: ear.lost)
        assert [(lost.close, lost.remote) for lost in ear.lost] == [(Close.GOODBYE, False)]
        far._socket.resume_reading()
        await endpoint.stop()

    run(body())


def test_an_owner_whose_tcp_peer_is_cut_off_hears_of_it_with_the_next_turn() -> None:
    """Its work has to go to others, while the last words linger."""

    async def body() -> None:
        door, ear = Door(None), Ear()
        endpoint = await TcpTransport(ROUTER).listen("127.0.0.1", 0, door.accept)
        near = await TcpTransport(NODE).dial(*endpoint.address, ear.accept)
        near.write(0, b"hello")
        await until(lambda: door.ears and door.ears[0].data)
        far = door.ears[0].connection
        assert isinstance(far, TcpConnection)
        far._socket.pause_reading()
        for _ in range(2):
            near.write(4, bytes(STUCK_BYTES // 2 + 1))
        for _ in range(2):
            await asyncio.sleep(0.0)
        assert [lost.close for lost in ear.lost] == [Close.LIMIT]
        far._socket.resume_reading()
        await endpoint.stop()

    run(body())


def test_who_has_closed_tcp_hears_nothing_more_of_the_same_bytes() -> None:
    async def body() -> None:
        class Curt(Ear):
            def data_received(self, stream: int, data: bytes, end: bool) -> None:
                super().data_received(stream, data, end)
                self.connection.close(Close.GOODBYE, "enough")

        ear, curt = Ear(), Curt()
        endpoint = await TcpTransport(ROUTER).listen("127.0.0.1", 0, curt.accept)
        near = await TcpTransport(NODE).dial(*endpoint.address, ear.accept)
        for stream in (0, 4, 8):
            near.write(stream, b"hello")
        await until(lambda: curt.lost)
        assert [*curt.data] == [0]
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
