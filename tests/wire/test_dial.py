"""Which transport is dialled: QUIC, TCP where UDP is blocked, and what the log says."""

import asyncio
import logging
import socket

import pytest

from mainspring.wire.dial import TCP_FOR_S, Choice, Dialer, Fallback
from mainspring.wire.errors import IdentityError
from mainspring.wire.quic import QuicTransport
from mainspring.wire.tcp import TcpTransport
from mainspring.wire.transport import Accept, Connection
from mainspring.wire.trust import Credentials
from support import fleet_pki as pki
from support.ears import Door, Ear, until

ROUTER, NODE = Credentials.of(pki.ROUTER), Credentials.of(pki.NODE)


class Path:
    """A transport that connects, or fails in one way; keeps when it was asked."""

    def __init__(self, name: str, fault: Exception | None = None) -> None:
        self.name, self.fault, self.asked = name, fault, 0

    async def dial(self, _host: str, _port: int, _accept: Accept) -> Connection:
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        return self  # type: ignore[return-value]

    async def listen(self, _host: str, _port: int, _accept: Accept) -> object:
        raise NotImplementedError


def dialer(quic: Path, tcp: Path, choice: Choice = "auto") -> tuple[Dialer, list[float]]:
    now_s = [0.0]
    return Dialer({"quic": quic, "tcp": tcp}, choice, now_s=lambda: now_s[0]), now_s  # type: ignore[dict-item]


def dial(each: Dialer) -> str:
    return asyncio.run(each.dial("router.test", 443, Ear().accept)).name  # type: ignore[attr-defined, no-any-return]


def test_quic_is_taken_where_it_works() -> None:
    quic, tcp = Path("quic"), Path("tcp")
    each, _ = dialer(quic, tcp)
    assert dial(each) == "quic"
    assert tcp.asked == 0


def test_tcp_is_taken_for_ten_minutes_where_udp_is_blocked(caplog: pytest.LogCaptureFixture) -> None:
    quic, tcp = Path("quic", ConnectionError("no handshake")), Path("tcp")
    each, now_s = dialer(quic, tcp)
    with caplog.at_level(logging.WARNING):
        assert dial(each) == "tcp"
    assert "seems to be blocked" in caplog.text
    assert "no handshake" in caplog.text
    now_s[0] = TCP_FOR_S - 1.0
    assert dial(each) == "tcp"
    assert quic.asked == 1
    quic.fault = None
    now_s[0] = TCP_FOR_S + 1.0
    assert dial(each) == "quic"


def test_where_nothing_answers_nothing_is_learnt(caplog: pytest.LogCaptureFixture) -> None:
    quic, tcp = Path("quic", ConnectionError("gone")), Path("tcp", ConnectionError("refused"))
    each, now_s = dialer(quic, tcp)
    with pytest.raises(ConnectionError, match="quic: gone; tcp: refused"):
        dial(each)
    tcp.fault = None
    assert dial(each) == "tcp"
    tcp.fault = ConnectionError("another network")
    now_s[0] = 1.0
    with pytest.raises(ConnectionError):
        dial(each)
    quic.fault = None
    assert dial(each) == "quic"


def test_a_router_that_is_not_ours_is_no_reason_to_try_another_way() -> None:
    quic, tcp = Path("quic", IdentityError("not ours")), Path("tcp")
    each, _ = dialer(quic, tcp)
    with pytest.raises(IdentityError):
        dial(each)
    assert tcp.asked == 0


@pytest.mark.parametrize("choice", ["quic", "tcp"])
def test_a_choice_is_kept(choice: Choice) -> None:
    quic, tcp = Path("quic", ConnectionError("no")), Path("tcp", ConnectionError("no"))
    each, _ = dialer(quic, tcp, choice)
    with pytest.raises(ConnectionError, match=choice):
        dial(each)
    assert (quic.asked, tcp.asked) == ((1, 0) if choice == "quic" else (0, 1))


def test_a_choice_orders_alone() -> None:
    fallback = Fallback("quic")
    fallback.blocked(0.0)
    assert fallback.order(1.0) == ("quic",)


def test_udp_that_is_swallowed_ends_on_tcp_and_udp_that_flows_on_quic(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real sockets: the router's UDP port is a hole first, then open."""
    monkeypatch.setattr("mainspring.wire.quic_channel.HANDSHAKE_S", 0.5)

    async def body() -> None:
        door = Door()
        tcp = await TcpTransport(ROUTER).listen("127.0.0.1", 0, door.accept)
        hole = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        hole.bind(tcp.address)
        first = await Dialer.of(NODE).dial(*tcp.address, Ear().accept)
        assert first.transport == "tcp"
        hole.close()
        quic = await QuicTransport(ROUTER).listen(*tcp.address, door.accept)  # one port for both
        assert quic.address == tcp.address
        ears = {choice: Ear() for choice in ("auto", "quic", "tcp")}
        for choice, ear in ears.items():
            connection = await Dialer.of(NODE, choice).dial(*tcp.address, ear.accept)  # type: ignore[arg-type]
            assert connection.transport == ("tcp" if choice == "tcp" else "quic")
            connection.write(0, b"hello", end=True)
        await until(lambda: all(ear.ended for ear in ears.values()))
        await tcp.stop()
        await quic.stop()
        await until(lambda: all(ear.lost for ear in ears.values()))

    with caplog.at_level(logging.WARNING):
        asyncio.run(body())
    assert caplog.text.count("seems to be blocked") == 1
