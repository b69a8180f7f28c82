"""TLS 1.3 over TCP, both sides verified: where UDP is blocked.

`tls_channel` is the handshake, `mux` the streams, `tcp_connection` puts them on a socket; here are the open port and
the dialling. At most 64 KiB and 5 s before a handshake is done; handshakes and connections are counted and capped.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from mainspring.wire.errors import Close, IdentityError
from mainspring.wire.guests import Guests
from mainspring.wire.keyring import Keyring
from mainspring.wire.selfcheck import check_tcp
from mainspring.wire.sockets import connect
from mainspring.wire.tcp_connection import HANDSHAKE_S, LINGER_S, TcpConnection
from mainspring.wire.tls_channel import TlsChannel, context_of
from mainspring.wire.transport import Accept, Connection, Lost, Receiver
from mainspring.wire.trust import CHECK_S, Credentials
from mainspring.wire.watch import Watch

log = logging.getLogger(__name__)


class TcpEndpoint:
    """Implements `Endpoint`."""

    def __init__(self, server: asyncio.Server, watch: Watch) -> None:
        self._server, self._watch = server, watch
        host, port = server.sockets[0].getsockname()[:2]
        self._address = (str(host), int(port))

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    async def stop(self) -> None:
        self._server.close()
        await self._watch.stop(LINGER_S + 1.0)


class _Guest(TcpConnection):
    """A connection that was accepted: counted from its first byte."""

    def __init__(
        self, channel: TlsChannel, wall_s: Callable[[], float], accept: Accept, guests: Guests, watch: Watch
    ) -> None:
        super().__init__(channel, wall_s, self._join_guests, self._leave_guests, dialer=False)
        self._accept, self._guests, self._watch = accept, guests, watch
        self._host: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        host = str((transport.get_extra_info("peername") or ("?",))[0])
        if why := self._guests.enter(host):
            self._guests.turn_away(log, host, why)
            transport.abort()  # type: ignore[attr-defined]  # a socket's transport has it
            return
        self._host = host
        self._watch.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._host is not None:
            super().connection_lost(exc)

    def _join_guests(self, connection: Connection) -> Receiver:
        receiver = self._accept(connection)
        assert self._host is not None  # noqa: S101 - entered before it could join
        self._guests.join(self._host)
        return receiver

    def _leave_guests(self, _connection: TcpConnection) -> None:
        assert self._host is not None  # noqa: S101 - as above
        self._guests.leave(self._host, joined=self.joined)
        self._watch.discard(self)
        if not self.joined and self.lost is not None:
            log.info("no handshake with %s: %s", self.address, self.lost.message)


class TcpTransport:
    """Implements `Transport`. `source`: a holder's folder, or credentials that never change.

    `server_name`: what a dialer wants the router's certificate to carry, the host it dials unless given. `wall_s` is
    Unix time; open connections are judged again every `check_s`.
    """

    name = "tcp"

    def __init__(
        self, source: Path | Credentials, *, revoked: Path | None = None, server_name: str | None = None,
        wall_s: Callable[[], float] = time.time, check_s: float = CHECK_S,
    ) -> None:  # fmt: skip
        self.keyring = Keyring(source, revoked)
        self._server_name = server_name
        self._wall_s = wall_s
        self._check_s = check_s

    async def listen(self, host: str, port: int, accept: Accept) -> TcpEndpoint:
        check_tcp()
        guests = Guests()
        watch = Watch(self.keyring, self._wall_s, self._check_s)
        context = context_of(self.keyring, dialer=False)

        def make() -> asyncio.Protocol:
            nonlocal context
            if watch.renewed():
                context = context_of(self.keyring, dialer=False)
            channel = TlsChannel(context, self.keyring, server_name=None)
            return _Guest(channel, self._wall_s, accept, guests, watch)

        server = await asyncio.get_running_loop().create_server(make, host, port, backlog=256)
        watch.start()
        return TcpEndpoint(server, watch)

    async def dial(self, host: str, port: int, accept: Accept) -> Connection:
        self.keyring.refresh()
        loop = asyncio.get_running_loop()
        watch = Watch(self.keyring, self._wall_s, self._check_s)
        joined: asyncio.Future[TcpConnection] = loop.create_future()

        def welcome(connection: Connection) -> Receiver:
            receiver = accept(connection)
            assert isinstance(connection, TcpConnection)  # noqa: S101 - for the types
            watch.add(connection)
            if not joined.done():
                joined.set_result(connection)
            return receiver

        def left(connection: TcpConnection) -> None:
            watch.discard(connection)
            watch.close()
            if not joined.done():
                joined.set_exception(dial_error(connection.lost))

        context = context_of(self.keyring, dialer=True)
        channel = TlsChannel(context, self.keyring, server_name=self._server_name or host)
        dialled = TcpConnection(channel, self._wall_s, welcome, left, dialer=True)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await loop.create_connection(lambda: dialled, sock=await connect(host, port))
                connection = await joined
        except TimeoutError as error:
            raise ConnectionError(f"no TLS handshake with {host}:{port} within {HANDSHAKE_S:g} s") from error
        except OSError as error:
            raise ConnectionError(f"{host}:{port}: {error.strerror or error}") from error
        finally:
            if not joined.done() or joined.cancelled():
                dialled.abort()
        watch.start()
        return connection


def dial_error(lost: Lost | None) -> Exception:
    """Why there is no connection, as `Transport.dial` raises it."""
    if lost is None:
        return ConnectionError("the connection ended")
    if lost.close in (Close.IDENTITY, Close.CERTIFICATE):
        return IdentityError(lost.message)
    return ConnectionError(lost.message)
