"""`GET /v1/models[/ID]`, `/version`, `/openapi.json`."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.gateway.body import answer, json_response
from mainspring.gateway.openapi import document
from mainspring.gateway.service import Gateway
from mainspring.gateway.visit import visit_of
from mainspring.wire import messages as m


def routes(gateway: Gateway) -> list[BaseRoute]:
    described = msgspec.json.encode(document(gateway.config))

    async def models(request: Request) -> Response:
        """Every model is listed under each of its names; one without usable nodes is listed too."""
        visit_of(request).route = "/v1/models"
        return answer({"object": "list", "data": [card(name, each) for each in _known() for name in names_of(each)]})

    async def model(request: Request) -> Response:
        """UnknownModelError (404), NoRouterError (503)."""
        visit_of(request).route = "/v1/models/{id}"
        name = request.path_params["id"]
        if not name:
            return await models(request)
        return answer(card(name, gateway.catalogue.find(name)))

    async def version(request: Request) -> Response:
        visit_of(request).route = "/version"
        return answer({"version": gateway.version})

    async def openapi(request: Request) -> Response:
        visit_of(request).route = "/openapi.json"
        return json_response(described)

    def _known() -> tuple[m.ModelStatus, ...]:
        return gateway.catalogue.models

    listed = [Route(path, models, methods=["GET"]) for path in ("/v1/models", "/models")]
    single = [Route(f"{path}/{{id:path}}", model, methods=["GET"]) for path in ("/v1/models", "/models")]
    return [
        *listed,
        *single,
        Route("/version", version, methods=["GET"]),
        Route("/openapi.json", openapi, methods=["GET"]),
    ]


def names_of(model: m.ModelStatus) -> tuple[str, ...]:
    return model.aliases or (model.model,)


def context_of(model: m.ModelStatus) -> int:
    """Tokens of prompt and reply together."""
    return min(model.limits.context_tokens, model.limits.stream_tokens)


def card(name: str, model: m.ModelStatus) -> dict[str, Any]:
    """As OpenAI's list has it, and what this fleet knows beside."""
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "mainspring",
        "root": model.model,
        "max_model_len": context_of(model),
        "nodes": model.nodes,
        "usable_nodes": model.usable,
        "numerics": list(model.numerics),
    }
