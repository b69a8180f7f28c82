"""aioquic's side of `wire.py`: the same bytes by its own asyncio client and server, where it is installed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from wire_figures import Figures


class AioquicArm:
    """The same bytes, one stream a pass, by aioquic's own asyncio server and client."""

    name = "aioquic"

    def __init__(self, folder: Path, tokens: bytes, answer_bytes: int) -> None:
        self.figures = Figures()
        self._folder = folder
        self._tokens, self._answer_bytes = tokens, answer_bytes

    async def start(self) -> int:
        from aioquic.asyncio.server import serve
        from aioquic.quic.configuration import QuicConfiguration

        configuration = QuicConfiguration(is_client=False, alpn_protocols=["bench"], idle_timeout=330.0)
        configuration.load_cert_chain(self._folder / "router-hill/cert.pem", self._folder / "router-hill/key.pem")
        self._joined = asyncio.get_running_loop().create_future()

        def greeted(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            protocol = writer.transport.protocol  # type: ignore[attr-defined]
            if not self._joined.done():
                self._joined.set_result(protocol)

        self._server = await serve("127.0.0.1", 0, configuration=configuration, stream_handler=greeted)
        return int(self._server._transport.get_extra_info("sockname")[1])

    async def ready(self) -> None:
        self._protocol = await self._joined

    async def one(self) -> None:
        reader, writer = await self._protocol.create_stream()
        writer.write(self._tokens)
        writer.write_eof()
        answer = await reader.read()
        if len(answer) != self._answer_bytes:
            raise ConnectionError("a short answer")

    async def stop(self) -> None:
        self._server.close()


async def aioquic_node(folder: Path, port: int, logits: bytes, over: Callable[[], Awaitable[None]]) -> None:
    from aioquic.asyncio.client import connect
    from aioquic.quic.configuration import QuicConfiguration

    tasks: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.write(logits)
        writer.write_eof()

    def opened(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(task := asyncio.get_running_loop().create_task(answer(reader, writer)))
        task.add_done_callback(tasks.discard)

    configuration = QuicConfiguration(is_client=True, alpn_protocols=["bench"], idle_timeout=330.0)
    configuration.server_name = "hill"
    configuration.load_verify_locations(str(folder / "ca.pem"))
    async with connect("127.0.0.1", port, configuration=configuration, stream_handler=opened) as protocol:
        _, writer = await protocol.create_stream()
        writer.write(b"hello")
        await over()
