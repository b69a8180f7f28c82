"""Connections that misbehave: too slow, too large, too many, gone. Each loses itself and nothing else."""

import asyncio
import json

import pytest

from mainspring.gateway.config import GatewayLimits
from support.gateway import SCORES, WAIT_S, ScriptedFleet, parse, play, served, until

BODY = json.dumps(SCORES).encode()


def head(length: int, *lines: str, path: str = "/v1/scores") -> bytes:
    return "\r\n".join(
        [f"POST {path} HTTP/1.1", "host: localhost", f"content-length: {length}", *lines, "", ""]
    ).encode()


def test_headers_have_a_time() -> None:
    async def scene() -> None:
        async with served(limits=GatewayLimits(header_s=0.2)) as s:
            for start in (b"", b"\r\n", b"POST /v1/scores HTTP/1.1\r\nhost: loc"):
                reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
                writer.write(start)
                reply = parse(await asyncio.wait_for(reader.read(), WAIT_S))
                assert reply.status == 408
                assert "limits.header_s" in reply.json["error"]["message"]
                writer.close()
            assert (await s.post("/v1/scores", SCORES)).status == 200

    play(scene())


def test_the_time_of_headers_does_not_go_on_once_they_are_there() -> None:
    """A connection rests for `keep_alive_s`, however its last headers came."""

    async def scene() -> None:
        async with served(limits=GatewayLimits(header_s=0.5, keep_alive_s=WAIT_S)) as s:
            reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
            try:
                request = b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n"
                for pieces in (4, 1, 1):
                    size = -(-len(request) // pieces)
                    for at in range(0, len(request), size):
                        writer.write(request[at : at + size])
                        await asyncio.sleep(0.03)
                    assert b" 200 " in await asyncio.wait_for(reader.readuntil(b"\r\n"), WAIT_S)
                    await asyncio.wait_for(reader.readuntil(b"}"), WAIT_S)
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(reader.read(1), 0.7)
            finally:
                writer.close()

    play(scene())


def test_a_dribble_of_empty_lines_between_requests_ends_too() -> None:
    async def scene() -> None:
        async with served(limits=GatewayLimits(header_s=0.3)) as s:
            reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
            writer.write(head(len(BODY)) + BODY)
            await asyncio.wait_for(reader.readuntil(b"}]"), WAIT_S)

            async def dribble() -> None:
                while True:
                    writer.write(b"\r\n")
                    await asyncio.sleep(0.05)

            task = asyncio.create_task(dribble())
            rest = await asyncio.wait_for(reader.read(), WAIT_S)
            task.cancel()
            assert b"408" in rest
            writer.close()

    play(scene())


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\n" + b"x: " + b"a" * 5000, 431),
        (b"GET / HTTP/1.1\r\n" + b"x: 1\r\n" * 200 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nx: " + b"a" * 3000 + b"\r\n\r\n", 431),
        (b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /" + b"a" * 5000, 414),
        (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", 400),
        (b"NONSENSE\r\n\r\n", 400),
    ],
)  # fmt: skip
def test_headers_have_a_size(data: bytes, status: int) -> None:
    async def scene() -> None:
        async with served(limits=GatewayLimits(header_kib=2)) as s:
            reply = await s.raw(data)
            assert reply.status == status
            assert set(reply.json["error"]) == {"message", "type", "param", "code"}
            assert (await s.post("/v1/scores", SCORES)).status == 200

    play(scene())


def test_a_body_has_a_size_by_its_length_and_by_its_bytes() -> None:
    async def scene() -> None:
        async with served(limits=GatewayLimits(body_mib=1, body_s=1.0)) as s:
            told = await s.raw(head(2 << 20, "connection: close"))
            assert (told.status, told.json["reason"], told.json["limit"]) == (413, "too_large", 1 << 20)
            chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
            lines = b"POST /v1/scores HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
            counted = await s.raw(lines.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n") + chunk * 20)
            assert (counted.status, counted.json["param"]) == (413, "body")
            assert s.gateway.counts.buffered_bytes == 0
            assert s.fleet.submits == []

    play(scene())


def test_the_rest_of_a_refused_body_is_thrown_away_and_the_connection_lives() -> None:
    async def scene() -> None:
        async with served(limits=GatewayLimits(body_mib=1)) as s:
            reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
            size = 3 << 20
            writer.write(head(size) + b" " * size + head(len(BODY), "connection: close") + BODY)
            data = await asyncio.wait_for(reader.read(), WAIT_S)
            assert data.count(b"HTTP/1.1 413") == 1
            assert data.count(b"HTTP/1.1 200") == 1
            writer.close()

    play(scene())


def test_a_body_has_a_time() -> None:
    async def scene() -> None:
        async with served(limits=GatewayLimits(body_s=0.2)) as s:
            reply = await s.raw(head(1000, "connection: close") + b"{")
            assert (reply.status, reply.json["reason"]) == (408, "body_timeout")
            _reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
            writer.write(head(1000) + b"{")
            await until(lambda: s.gateway.counts.open == 1)
            writer.close()
            await until(lambda: s.gateway.counts.open == 0)

    play(scene())


def test_a_body_that_never_comes_after_its_answer_ends_the_connection() -> None:
    async def scene() -> None:
        async with served(limits=GatewayLimits(body_s=0.2)) as s:
            reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
            writer.write(head(1000, path="/nothing") + b"{")
            await asyncio.wait_for(reader.readuntil(b"not_found"), WAIT_S)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await asyncio.wait_for(reader.readexactly(10_000), WAIT_S)
            writer.close()

    play(scene())


def test_memory_of_bodies_is_bounded() -> None:
    async def scene() -> None:
        async with served(limits=GatewayLimits(body_mib=2, buffered_mib=1)) as s:
            size = 3 << 19
            reply = await s.raw(head(size, "connection: close") + b" " * size)
            assert (reply.status, reply.json["reason"]) == (429, "gateway_busy")
            assert "limits.buffered_mib" in reply.json["detail"]

    play(scene())


def test_bodies_count_until_their_requests_are_over() -> None:
    async def scene() -> None:
        fleet = ScriptedFleet(hold=asyncio.Event())
        async with served(fleet, limits=GatewayLimits(body_mib=2, buffered_mib=1)) as s:
            large = {**SCORES, "respan_params": {"metadata": "x" * (3 << 18)}}
            first = asyncio.create_task(s.post("/v1/scores", large))
            await until(lambda: len(fleet.submits) == 1)
            second = await s.post("/v1/scores", large)
            assert (second.status, second.json["reason"]) == (429, "gateway_busy")
            assert fleet.hold is not None
            fleet.hold.set()
            assert (await first).status == 200
            await until(lambda: s.gateway.counts.buffered_bytes == 0)
            assert (await s.post("/v1/scores", large)).status == 200

    play(scene())


def test_connections_are_counted() -> None:
    async def scene() -> None:
        async with served(limits=GatewayLimits(connections=2)) as s:
            held = [await asyncio.open_connection("127.0.0.1", s.port) for _ in range(2)]
            await asyncio.sleep(0.05)
            reply = await s.raw(b"")
            assert reply.status == 503
            assert "limits.connections" in reply.json["error"]["message"]
            assert (reply.headers["retry-after-ms"], reply.headers["x-should-retry"]) == ("1000", "true")
            for _reader, writer in held:
                writer.close()
            await asyncio.sleep(0.05)
            assert (await s.get("/health")).status == 200

    play(scene())


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("content-type: application/x-www-form-urlencoded",), 415), (("content-type: multipart/form-data",), 415),
        (("content-encoding: gzip",), 415), (("content-type: text/plain",), 200), ((), 200),
    ],
)  # fmt: skip
def test_kinds_of_bodies(lines: tuple[str, ...], status: int) -> None:
    async def scene() -> None:
        async with served() as s:
            assert (await s.raw(head(len(BODY), "connection: close", *lines) + BODY)).status == status

    play(scene())


def test_expect_continue_pipelines_and_http_1_0() -> None:
    async def scene() -> None:
        async with served() as s:
            reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
            writer.write(head(len(BODY), "expect: 100-continue"))
            assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)).startswith(b"HTTP/1.1 100")
            writer.write(BODY + head(len(BODY)) + BODY + head(len(BODY), "connection: close") + BODY)
            data = await asyncio.wait_for(reader.read(), WAIT_S)
            assert data.count(b"HTTP/1.1 200") == 3
            writer.close()
            old = await s.raw(head(len(BODY)).replace(b"HTTP/1.1", b"HTTP/1.0") + BODY)
            assert old.status == 200

    play(scene())


def test_many_at_once_each_get_their_own() -> None:
    async def scene() -> None:
        fleet = ScriptedFleet()
        async with served(fleet) as s:
            asked = [SCORES | {"behaviors": [{"id": f"b{n}", "definition": "the assistant lies"}]} for n in range(100)]
            replies = await asyncio.gather(*(s.post("/v1/scores", each) for each in asked))
            assert [reply.json["results"][0]["id"] for reply in replies] == [f"b{n}" for n in range(100)]
            assert s.gateway.counts.open == 0
            assert s.gateway.counts.begun == sum(s.gateway.counts.finished.values())

    play(scene())
