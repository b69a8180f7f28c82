"""The end of a connection over TCP whose peer was faster."""

import asyncio
from typing import Any, cast

from mainspring.wire.tcp_connection import TcpConnection


class Channel:
    """Shaken, nothing to say."""

    shaken = True
    ended = peer = None

    def finish(self) -> None: ...

    def outgoing(self) -> bytes:
        return b""


class Gone:
    """A socket whose peer has reset it: the system does not shut it down any more."""

    asked = 0

    def is_closing(self) -> bool:
        return False

    def write_eof(self) -> None:
        self.asked += 1
        raise OSError(107, "Transport endpoint is not connected")


def test_a_peer_that_has_gone_first_is_no_fault() -> None:
    async def scene() -> None:
        connection = TcpConnection(
            cast(Any, Channel()), lambda: 0.0, cast(Any, None), lambda _connection: None, dialer=True
        )
        socket = Gone()
        connection._socket = cast(Any, socket)
        connection._say_eof()
        connection._say_eof()
        assert socket.asked == 1

    asyncio.run(scene())
