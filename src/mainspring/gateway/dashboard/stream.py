"""One watcher's response: server-sent events, `history` once, then `snapshot` each second.

Bounded: a stream ends after an hour (the page comes back by itself), and one that is not read is cut off by the front
(`limits.body_s`). A gateway that shuts down ends each stream with a `closing` event.
"""

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mainspring.gateway.dashboard.feed import Feed

LONGEST_S = 3600.0
RETRY = b"retry: 2000\n"


class StatusStream(Response):
    """`Feed.watchers` counts it while it lasts."""

    media_type = "text/event-stream"

    def __init__(self, feed: Feed, *, longest_s: float = LONGEST_S) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._feed, self._longest_s = feed, longest_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        self._feed.watch()  # counted before anything is waited for
        try:
            await self._until_gone(receive, send)
        finally:
            self._feed.unwatch()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _until_gone(self, receive: Receive, send: Send) -> None:
        telling, gone = asyncio.create_task(self._tell(send)), asyncio.create_task(hung_up(receive))
        try:
            await asyncio.wait((telling, gone), timeout=self._longest_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (telling, gone):
                task.cancel()
            await asyncio.gather(telling, gone, return_exceptions=True)
        if not telling.cancelled():
            telling.result()

    async def _tell(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await event(send, b"history", self._feed.past(), RETRY)
        number = self._feed.number
        await event(send, b"snapshot", self._feed.latest)
        while not self._feed.closed:
            number = await self._feed.after(number)
            if not self._feed.closed:
                await event(send, b"snapshot", self._feed.latest)
        await event(send, b"closing", b"{}")


async def event(send: Send, name: bytes, data: bytes, head: bytes = b"") -> None:
    body = b"%sevent: %s\ndata: %s\n\n" % (head, name, data)
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
