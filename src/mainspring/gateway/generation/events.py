"""A reply as server-sent events. Bounded: one event is made when the one before was taken; who reads nothing is cut off
by the front (`limits.body_s`), who hangs up takes the reply back.

A fault on the way is an event of its own, never an end that looks well; so is a drain whose time is over.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mainspring.errors import MainspringError
from mainspring.faultlog import described
from mainspring.fleet.errors import InternalError
from mainspring.gateway.errors import RETRY_S, ClosingError, HangUpError
from mainspring.gateway.visit import Visit

log = logging.getLogger("mainspring.gateway.requests")

KEEP_ALIVE_S = 15.0
KEEP_ALIVE = b": keepalive\n\n"
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
Events = AsyncGenerator[bytes, None]


class EventStream(Response):
    """`events` are whole (`data: ...\\n\\n`) and closed at the end, whatever happens; `fault(error)` makes the event of
    a fault; `closing()` lets go of what the events are made of."""

    media_type = "text/event-stream"

    def __init__(
        self, visit: Visit, events: Events, fault: Callable[[MainspringError], bytes],
        headers: list[tuple[bytes, bytes]], *, closing: Callable[[], Awaitable[None]],
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:  # fmt: skip
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self.raw_headers.extend(headers)
        self._closing = closing
        self._started = False
        self._visit, self._events, self._fault, self._keep_alive_s = visit, events, fault, keep_alive_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        telling = asyncio.create_task(self._tell(send))
        gone = asyncio.create_task(_hung_up(receive))
        try:
            await asyncio.wait((telling, gone), return_when=asyncio.FIRST_COMPLETED)
            if telling.done():
                telling.result()
                return
            raise HangUpError("the client hung up")
        except asyncio.CancelledError:
            await _ended(telling)
            if self._visit.cut and self._started:
                await self._say(
                    send, self._fault(ClosingError("this gateway is being replaced", retry_after_s=RETRY_S))
                )
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            raise
        finally:
            await _ended(telling)
            await _ended(gone)
            await self._events.aclose()
            await self._closing()  # a generator that never began closes nothing

    async def _tell(self, send: Send) -> None:
        self._started = True
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            await self._all(send)
        except HangUpError:
            raise
        except MainspringError as error:
            self._visit.code = error.code
            await self._say(send, self._fault(error))
        except Exception as error:
            fields = {"request_id": self._visit.request_id, "at": described(error)}
            log.error("a fault of ours", extra={"fields": fields})
            self._visit.code = InternalError.code
            await self._say(send, self._fault(InternalError("internal fault")))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _all(self, send: Send) -> None:
        """Events, and comments while none comes."""
        coming: asyncio.Task[bytes] | None = None
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(self._events, b""))
                await asyncio.wait((coming,), timeout=self._keep_alive_s)
                if not coming.done():
                    await self._say(send, KEEP_ALIVE)
                    continue
                event, coming = coming.result(), None
                if not event:
                    return
                await self._say(send, event)
        finally:
            if coming is not None:
                await _ended(coming)
            coming = None  # a fault's traceback holds this frame

    async def _say(self, send: Send, event: bytes) -> None:
        await send({"type": "http.response.body", "body": event, "more_body": True})


def data(body: bytes, name: bytes = b"") -> bytes:
    """One event. JSON has no line breaks of its own."""
    return b"event: %b\ndata: %b\n\n" % (name, body) if name else b"data: %b\n\n" % body


async def _ended(task: "asyncio.Task[None] | asyncio.Task[bytes]") -> None:
    """Without a word of what it died of: it was cancelled, or its fault has been told."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
