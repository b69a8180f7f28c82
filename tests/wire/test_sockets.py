"""Connecting to the first address that answers, and both transports under uvloop, whose classes are not asyncio's."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from mainspring.wire import sockets
from mainspring.wire.quic import QuicTransport
from mainspring.wire.tcp import TcpTransport
from mainspring.wire.trust import Credentials
from support import fleet_pki as pki
from support.ears import Door, Ear, until

Runner = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Runner:
    return asyncio.run if request.param == "asyncio" else uvloop.run


@pytest.mark.parametrize("kind", [TcpTransport, QuicTransport])
def test_a_transport_works_under_uvloop(kind: type[TcpTransport] | type[QuicTransport]) -> None:
    async def body() -> None:
        door, ear = Door(), Ear()
        endpoint = await kind(Credentials.of(pki.ROUTER)).listen("127.0.0.1", 0, door.accept)
        near = await kind(Credentials.of(pki.NODE)).dial(*endpoint.address, ear.accept)
        near.write(0, bytes(1 << 20), end=True)
        await until(lambda: 0 in ear.ended)
        assert len(ear.data[0]) == 1 << 20
        await endpoint.stop()
        await until(lambda: ear.lost)

    uvloop.run(body())


def scripted(monkeypatch: pytest.MonkeyPatch, **ports: str) -> list[int]:
    """Addresses by port: what happens on each. Returns the ports in order of trying."""
    tried: list[int] = []
    order = list(ports.values())

    async def connect(_family: int, address: sockets.Address) -> socket.socket:
        tried.append(address[1])
        if order[address[1]] == "silent":
            await asyncio.Event().wait()
        if order[address[1]] == "refused":
            raise ConnectionRefusedError(f"address {address[1]}")
        return socket.socket()

    monkeypatch.setattr(sockets, "_connect", connect)
    monkeypatch.setattr(sockets, "STAGGER_S", 0.02)
    return tried


async def among(count: int) -> socket.socket:
    loop = asyncio.get_running_loop()

    async def found(*_arguments: object, **_options: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("host", number)) for number in range(count)]

    real, loop.getaddrinfo = loop.getaddrinfo, found  # type: ignore[method-assign]
    try:
        return await sockets.connect("host", 1)
    finally:
        loop.getaddrinfo = real  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("first", "second", "tried"),
    [("open", "open", [0]), ("refused", "open", [0, 1]), ("silent", "open", [0, 1]), ("silent", "refused", [0, 1])],
)
def test_the_next_address_when_one_fails_or_is_silent(
    monkeypatch: pytest.MonkeyPatch, first: str, second: str, tried: list[int]
) -> None:
    seen = scripted(monkeypatch, a=first, b=second)

    async def body() -> None:
        if second == "refused":  # the silent one may still answer: who calls sets the limit
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await among(2)
        else:
            (await among(2)).close()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(body())
    assert seen == tried


def test_where_none_answers_the_first_fault_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, a="refused", b="refused")

    async def body() -> None:
        with pytest.raises(ConnectionRefusedError, match="address 0"):
            await among(2)

    asyncio.run(body())


def test_a_real_connection(run: Runner) -> None:
    async def body() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            (await sockets.connect("localhost", server.getsockname()[1])).close()
            port = server.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            await sockets.connect("127.0.0.1", port)

    run(body())


def test_what_is_dialled_waits_for_no_acknowledgement(run: Runner) -> None:
    async def body() -> None:
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        sock = await sockets.connect("127.0.0.1", server.sockets[0].getsockname()[1])
        at_once = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        sock.close()
        server.close()
        assert at_once

    run(body())
