"""`GET /`: the page of people; `/assets/NAME`: its files. Open without a key: there is nothing of the fleet in them."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.gateway.dashboard import page
from mainspring.gateway.errors import NotFoundError
from mainspring.gateway.service import Gateway
from mainspring.gateway.visit import visit_of


def routes(_gateway: Gateway) -> list[BaseRoute]:
    assets = page.load()

    async def index(request: Request) -> Response:
        visit_of(request).route = "/"
        return page.answer(request, assets[page.INDEX])

    async def asset(request: Request) -> Response:
        visit_of(request).route = "/assets"
        found = assets.get(request.path_params["name"])
        if found is None:
            raise NotFoundError("the page has no such file")
        return page.answer(request, found)

    return [
        Route("/", index, methods=["GET"]),
        Route("/assets/{name}", asset, methods=["GET"]),
    ]
