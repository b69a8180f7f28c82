"""`GET /status`: what gateway and router know, for people and programs. `GET /status/events`: the same each second."""

import asyncio
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.gateway.body import answer
from mainspring.gateway.dashboard.feed import Feed, snapshot
from mainspring.gateway.dashboard.stream import StatusStream
from mainspring.gateway.errors import RETRY_S, ClosingError
from mainspring.gateway.service import Gateway
from mainspring.gateway.visit import visit_of


def routes(gateway: Gateway) -> list[BaseRoute]:
    feed = Feed(gateway)
    with suppress(RuntimeError):  # no loop runs yet: the chart's past begins with the first watcher
        asyncio.get_running_loop()
        feed.start()

    async def status(request: Request) -> Response:
        visit_of(request).route = "/status"
        return answer(snapshot(gateway))

    async def events(request: Request) -> StatusStream:
        visit_of(request).route = "/status/events"
        if gateway.closing.is_set():
            raise ClosingError("this gateway is being replaced", retry_after_s=RETRY_S)
        return StatusStream(feed)

    return [
        Route("/status", status, methods=["GET"]),
        Route("/status/events", events, methods=["GET"]),
    ]
