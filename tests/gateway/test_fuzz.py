"""Bytes that are nearly a request: cut, changed, doubled, split. Whatever they do, the next client is served, nothing
stays open, and each request that began has ended."""

import asyncio
import json
import random
from contextlib import suppress

from mainspring.gateway.config import GatewayLimits
from support.gateway import SCORES, WAIT_S, play, served, until

ROUNDS = 300
BODY = json.dumps(SCORES).encode()
HEAD = f"POST /v1/scores HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(BODY)}"
CHUNKED = b"POST /v1/scores HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
SEEDS = (
    HEAD.encode() + b"\r\n\r\n" + BODY,
    CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
    b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nx-slo-class: batch\r\n\r\n",
    b"OPTIONS /v1/scores HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\n\r\n",
)
SPICES = (
    b"\x00", b"\r\n", b"\n", b"\xff\xfe", b"%", b"\xe4", b" ", b"\t", b"[" * 500, b"content-length: 7\r\n",
    b"transfer-encoding: chunked\r\n", b"connection: upgrade\r\nupgrade: websocket\r\n", b"expect: 100-continue\r\n",
)  # fmt: skip


def spoiled(chance: random.Random) -> bytes:
    data = bytearray(chance.choice(SEEDS))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(5)
        if kind == 0:
            data[at:at] = chance.choice(SPICES)
        elif kind == 1:
            del data[at : at + chance.randint(1, 40)]
        elif kind == 2 and at < len(data):
            data[at] = chance.randrange(256)
        elif kind == 3:
            data += chance.choice(SEEDS)
        else:
            del data[at:]
        data = data or bytearray(b"G")
    return bytes(data)


def test_nearly_requests_harm_nobody_else() -> None:
    async def one(port: int, chance: random.Random) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        data = spoiled(chance)
        with suppress(ConnectionError, TimeoutError):
            at = chance.randrange(len(data) + 1)
            for piece in (data[:at], data[at:]):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                async with asyncio.timeout(0.02):
                    await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def scene() -> None:
        chance = random.Random(20)
        async with served(limits=GatewayLimits(header_s=0.5, body_s=0.5, header_kib=4)) as s:
            for start in range(0, ROUNDS, 20):
                await asyncio.gather(*(one(s.port, random.Random(chance.random())) for _ in range(20)))
                reply = await asyncio.wait_for(s.post("/v1/scores", SCORES), WAIT_S)
                assert reply.status == 200, start
            await until(lambda: s.gateway.counts.open == 0)
            assert s.gateway.counts.begun == sum(s.gateway.counts.finished.values())
            assert s.gateway.counts.buffered_bytes == 0
            assert not [status for _, status in s.gateway.counts.finished if status == 500]

    play(scene())
