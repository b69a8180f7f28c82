"""Liveness, readiness and metrics."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.gateway.body import answer
from mainspring.gateway.metrics import CONTENT_TYPE
from mainspring.gateway.service import Gateway
from mainspring.gateway.visit import visit_of


def routes(gateway: Gateway) -> list[BaseRoute]:
    scraping = asyncio.Lock()

    async def alive(request: Request) -> Response:
        """The loop runs; nothing else is said."""
        visit_of(request).route = "/health"
        return answer({"status": "ok"})

    async def ready(request: Request) -> Response:
        visit_of(request).route = "/health/ready"
        fine, reason = gateway.ready()
        return answer({"status": "ready" if fine else "not_ready", "reason": reason}, 200 if fine else 503)

    async def metrics(request: Request) -> Response:
        """One page at a time, made off the loop."""
        visit_of(request).route = "/metrics"
        async with scraping:
            page = await asyncio.to_thread(gateway.metrics.text)
        return Response(page, media_type=None, headers={"content-type": CONTENT_TYPE})

    return [
        Route("/health", alive, methods=["GET"]),
        Route("/health/ready", ready, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]
