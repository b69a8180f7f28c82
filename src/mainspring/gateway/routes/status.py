"""`GET /status`: what gateway and router know, for people and programs."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.gateway.body import answer
from mainspring.gateway.dashboard.feed import snapshot
from mainspring.gateway.service import Gateway
from mainspring.gateway.visit import visit_of


def routes(gateway: Gateway) -> list[BaseRoute]:
    async def status(request: Request) -> Response:
        visit_of(request).route = "/status"
        return answer(snapshot(gateway))

    return [Route("/status", status, methods=["GET"])]
