"""Connections that mean harm: what they may hold, how long they may stay, and what they must not do to others."""

import asyncio
import json
import socket
from contextlib import suppress

import pytest

from mainspring.gateway.config import GatewayLimits
from mainspring.gateway.protocol import PIPELINED, _Leaving
from support.gateway import SCORES, WAIT_S, ScriptedFleet, Served, parse, play, served, until

BODY = json.dumps(SCORES).encode()
CHUNKED = b"POST /v1/scores HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


def head(length: int, *lines: str) -> bytes:
    return "\r\n".join(
        ["POST /v1/scores HTTP/1.1", "host: localhost", f"content-length: {length}", *lines, "", ""]
    ).encode()


async def read_all(reader: asyncio.StreamReader) -> bytes:
    """To the end of the connection, however it ends."""
    found = b""
    try:
        while data := await asyncio.wait_for(reader.read(1 << 16), WAIT_S):
            found += data
    except ConnectionError:
        pass
    return found


async def unread(s: Served, data: bytes) -> socket.socket:
    """A peer with a small buffer that sends and never reads."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", s.port))
    with suppress(ConnectionError):  # cut off before it has sent all
        await loop.sock_sendall(sock, data)
    return sock


@pytest.mark.parametrize("start", [b"1\r\na\r\n0\r\nx: ", b"1;x=", b"1\r\na\r\n0\r\n" + b"x: 1\r\n"])
@pytest.mark.parametrize("path", [b"/v1/scores", b"/nothing"])
def test_what_trails_a_body_has_a_size(start: bytes, path: bytes) -> None:
    """The parser gathers it as one value, longer with each piece: time and memory of the square. That holds after the
    answer as well."""

    async def scene() -> None:
        async with served(limits=GatewayLimits(header_kib=4, body_s=WAIT_S)) as s:
            reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
            writer.write(CHUNKED.replace(b"/v1/scores", path) + start)
            await writer.drain()
            reading = asyncio.create_task(read_all(reader))
            sent = 0
            try:
                while sent < 1 << 20 and not reading.done():
                    writer.write(b"a" * 1000)
                    await writer.drain()
                    await asyncio.sleep(0.001)
                    sent += 1000
            except ConnectionError:
                pass
            await reading
            assert sent < 1 << 20
            writer.close()
            assert (await s.post("/v1/scores", SCORES)).status == 200

    play(scene())


def test_what_trails_a_body_is_no_header_of_the_request() -> None:
    async def scene() -> None:
        async with served() as s:
            trailed = b"%x\r\n%b\r\n0\r\nx-slo-class: nonsense\r\nx-deadline-ms: 0\r\n\r\n" % (len(BODY), BODY)
            close = CHUNKED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
            reply = await s.raw(close.replace(b"/v1/scores", b"/v1/decisions") + trailed)
            assert reply.status == 422
            assert reply.json["param"] != "x-slo-class"
            assert (await s.raw(close + trailed)).status == 200

    play(scene())


def test_requests_ahead_of_their_answers_are_counted() -> None:
    async def scene() -> None:
        fleet = ScriptedFleet(hold=asyncio.Event())
        async with served(fleet) as s:
            reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
            writer.write(head(len(BODY)) + BODY + HEALTH * PIPELINED)
            await until(lambda: len(fleet.submits) == 1)
            assert fleet.hold is not None
            fleet.hold.set()
            data = b""
            while data.count(b"HTTP/1.1 200") <= PIPELINED:
                data += await asyncio.wait_for(reader.read(1 << 16), WAIT_S)
            writer.close()

            fleet.hold.clear()
            reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
            writer.write(head(len(BODY)) + BODY + HEALTH * (PIPELINED + 2))
            assert await read_all(reader) == b""
            await until(lambda: fleet.cancelled + s.gateway.counts.open == (1 if len(fleet.submits) == 2 else 0))
            writer.close()
            assert (await s.get("/health")).status == 200

    play(scene())


def test_a_hang_up_reaches_the_request_that_runs_not_the_one_behind_it() -> None:
    async def scene() -> None:
        fleet = ScriptedFleet(hold=asyncio.Event())
        async with served(fleet) as s:
            _reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
            writer.write(head(len(BODY)) + BODY)
            await until(lambda: len(fleet.submits) == 1)
            writer.write(HEALTH)
            await asyncio.sleep(0.05)
            writer.write(b"nonsense\r\n\r\n" * (1 << 16))
            writer.transport.abort()
            for connection in list(s.server_connections()):
                connection.transport.abort()
            await until(lambda: fleet.cancelled == 1 and s.gateway.counts.open == 0)
            assert s.gateway.counts.begun == 1

    play(scene())


def test_nonsense_behind_a_request_is_not_answered_in_its_place() -> None:
    async def scene() -> None:
        fleet = ScriptedFleet(hold=asyncio.Event())
        async with served(fleet) as s:
            reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
            writer.write(head(len(BODY)) + BODY)
            await until(lambda: len(fleet.submits) == 1)
            writer.write(b"nonsense\r\n\r\n")
            assert await read_all(reader) == b""
            await until(lambda: fleet.cancelled == 1)
            writer.close()

    play(scene())


def test_nonsense_within_a_body_is_told() -> None:
    async def scene() -> None:
        async with served() as s:
            reply = await s.raw(CHUNKED + b"nonsense\r\n")
            assert reply.status == 400
            await until(lambda: s.gateway.counts.open == 0)

    play(scene())


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("line", ["x-any: 1", "connection: close"])
def test_who_reads_no_answer_is_cut_off(times: int, line: str) -> None:
    """More than the system takes: 1 MB each. The peers stay connected all the while."""

    async def scene() -> None:
        limits = GatewayLimits(body_s=0.3, keep_alive_s=3600)
        behaviors = [{"id": f"{'x' * 1000}{n}", "definition": "the assistant lies"} for n in range(4000)]
        body = json.dumps(SCORES | {"behaviors": behaviors}).encode()
        async with served(limits=limits) as s:
            socks = [await unread(s, (head(len(body)) + body) * (times - 1) + head(len(body), line) + body)
                     for _ in range(2)]  # fmt: skip
            await until(lambda: s.gateway.counts.scored_requests >= 2)
            await until(lambda: not s.server_connections() and s.gateway.counts.open == 0)
            for sock in socks:
                sock.close()

    play(scene())


def test_a_closed_connection_does_not_wait_for_ever_for_its_peer() -> None:
    class Transport:
        def __init__(self) -> None:
            self.closed, self.aborted = 0, 0

        def write(self, data: bytes) -> None: ...

        def is_closing(self) -> bool:
            return self.closed > 0

        def close(self) -> None:
            self.closed += 1

        def abort(self) -> None:
            self.aborted += 1

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        slow, gone = Transport(), Transport()
        for transport in (slow, gone):
            leaving = _Leaving(transport, loop, 0.01)  # type: ignore[arg-type]
            leaving.close()
            leaving.close()
            if transport is gone:
                leaving.left()
        await until(lambda: slow.aborted == 1)
        assert gone.aborted == 0
        assert gone.closed == 2

    play(scene())


def test_a_head_and_its_body_go_out_in_one_write_and_nothing_is_held_longer_than_a_turn() -> None:
    class Transport:
        def __init__(self) -> None:
            self.did: list[bytes] = []

        def write(self, data: bytes) -> None:
            self.did.append(data)

        def is_closing(self) -> bool:
            return b"closed" in self.did

        def close(self) -> None:
            self.did.append(b"closed")

        def abort(self) -> None:
            self.did.append(b"aborted")

    async def scene() -> None:
        transport = Transport()
        leaving = _Leaving(transport, asyncio.get_running_loop(), WAIT_S)  # type: ignore[arg-type]
        leaving.write(b"head,")
        leaving.write(b"body")
        assert transport.did == [b"head,body"]
        leaving.write(b"event")
        await asyncio.sleep(0)
        assert transport.did == [b"head,body", b"event"]
        leaving.write(b"last words")
        leaving.close()
        leaving.left()
        assert transport.did[2:] == [b"last words", b"closed"]
        await asyncio.sleep(0)
        assert len(transport.did) == 4

    play(scene())


def test_a_body_that_is_still_sent_behind_another_request_has_its_time() -> None:
    async def scene() -> None:
        fleet = ScriptedFleet(hold=asyncio.Event())
        async with served(fleet, limits=GatewayLimits(body_s=WAIT_S)) as s:
            reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
            writer.write(head(len(BODY)) + BODY + head(len(BODY), "connection: close") + BODY[:10])
            await until(lambda: len(fleet.submits) == 1)
            assert fleet.hold is not None
            fleet.hold.set()
            await asyncio.wait_for(reader.readuntil(b"}]"), WAIT_S)
            (connection,) = s.server_connections()
            assert connection._timer is None
            writer.write(BODY[10:])
            assert b"HTTP/1.1 200" in await read_all(reader)
            writer.close()

    play(scene())


@pytest.mark.parametrize("kind", ["h2c", "websocket"])
@pytest.mark.parametrize("pieces", [1, 3])
def test_an_upgrade_is_answered_as_what_it_was_sent_in(kind: str, pieces: int) -> None:
    """Java's client asks for h2c with its first request, body and all."""

    async def scene() -> None:
        async with served() as s:
            lines = (f"upgrade: {kind}", "connection: Upgrade, HTTP2-Settings", "http2-settings: AAMAAABk")
            chunked = CHUNKED.replace(b"\r\n\r\n", ("\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode())
            parts = (
                head(len(BODY), *lines) + BODY,
                chunked + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
                HEALTH.replace(b"\r\n\r\n", ("\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode()),
                head(len(BODY), "connection: close") + BODY,
            )
            reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
            for number, part in enumerate(parts):
                step = -(-len(part) // pieces)
                for at in range(0, len(part), step):
                    writer.write(part[at : at + step])
                    await writer.drain()
                    await asyncio.sleep(0.01)
                if number + 1 < len(parts):
                    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
                    assert parse(answer).status == 200
                    await reader.readexactly(int(parse(answer).headers["content-length"]))
            assert parse(await read_all(reader)).status == 200
            writer.close()
            assert len(s.fleet.submits) == 3

    play(scene())
