"""A TCP socket to the first of a host's addresses that answers, whatever event loop runs (uvloop races none itself).

RFC 8305 in its simplest form: the next address is tried when the one before has failed or was silent for `STAGGER_S`.
"""

import asyncio
import socket
from typing import Any

STAGGER_S = 0.25
Address = tuple[Any, ...]


async def connect(host: str, port: int) -> socket.socket:
    """Non-blocking and connected. OSError of the first address where none answers. Cancelling closes what is open."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    open_: list[asyncio.Task[socket.socket]] = []
    winner: socket.socket | None = None
    try:
        for family, _, _, _, address in found:
            open_.append(loop.create_task(_connect(family, address)))
            last = len(open_) == len(found)
            winner = await _first(open_, None if last else STAGGER_S)
            if winner is not None:
                return winner
        raise next(error for task in open_ if (error := task.exception()) is not None)
    finally:
        for task in open_:
            task.cancel()
        for result in await asyncio.gather(*open_, return_exceptions=True):
            if isinstance(result, socket.socket) and result is not winner:
                result.close()


async def _first(tasks: list["asyncio.Task[socket.socket]"], within_s: float | None) -> socket.socket | None:
    """The first to succeed; None when the newest has failed or the time is over: the next may begin. Without a time
    only when all have failed."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        done, pending = await asyncio.wait(pending, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if task.exception() is None:
                return task.result()
        if not done or (within_s is not None and tasks[-1].done()):
            return None
    return None


async def _connect(family: int, address: Address) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        # asyncio sets it on sockets of its own making alone: small frames would wait 40 ms for an acknowledgement.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock
