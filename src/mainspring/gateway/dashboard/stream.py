"""One watcher's response: server-sent events, `history` once, then `snapshot` each second.

Bounded: so many watchers, so long a stream (the page comes back by itself), so long a wait for one that does not read.
A gateway that shuts down ends each stream with a `closing` event.
"""

import asyncio

from starlette.types import Message, Receive, Scope, Send

from mainspring.gateway.dashboard.feed import Feed

WATCHERS = 64
LONGEST_S = 3600.0
STALLED_S = 20.0
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


class StatusStream:
    """An ASGI response. `Feed.watchers` counts it while it lasts."""

    def __init__(self, feed: Feed, *, longest_s: float = LONGEST_S, stalled_s: float = STALLED_S) -> None:
        self._feed, self._longest_s, self._stalled_s = feed, longest_s, stalled_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tasks = [asyncio.create_task(self._tell(send)), asyncio.create_task(hung_up(receive))]
        try:
            await asyncio.wait(tasks, timeout=self._longest_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            told = (await asyncio.gather(*tasks, return_exceptions=True))[0]
        if isinstance(told, TimeoutError | OSError):
            return  # nobody reads: the server closes what is left
        await self._say(send, {"type": "http.response.body", "body": b"", "more_body": False})

    async def _tell(self, send: Send) -> None:
        self._feed.watch()
        try:
            await self._all(send)
        finally:
            self._feed.unwatch()

    async def _all(self, send: Send) -> None:
        await self._say(send, {"type": "http.response.start", "status": 200, "headers": HEADERS})
        await self._event(send, b"history", self._feed.past(), b"retry: 2000\n")
        number = self._feed.number
        await self._event(send, b"snapshot", self._feed.latest)
        while not self._feed.closed:
            number = await self._feed.after(number)
            if not self._feed.closed:
                await self._event(send, b"snapshot", self._feed.latest)
        await self._event(send, b"closing", b"{}")

    async def _event(self, send: Send, name: bytes, data: bytes, head: bytes = b"") -> None:
        body = b"%sevent: %s\ndata: %s\n\n" % (head, name, data)
        await self._say(send, {"type": "http.response.body", "body": body, "more_body": True})

    async def _say(self, send: Send, message: Message) -> None:
        async with asyncio.timeout(self._stalled_s):
            await send(message)


async def hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
