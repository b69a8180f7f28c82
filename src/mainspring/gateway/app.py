"""`build_app(gateway)`: the ASGI application, a file of routes a family behind one front."""

from starlette.routing import BaseRoute

from mainspring.gateway.front import Front
from mainspring.gateway.routes import (
    chat,
    completions,
    dashboard,
    decisions,
    generative,
    health,
    messages,
    models,
    scores,
    status,
    systemone,
    tokens,
)
from mainspring.gateway.service import Gateway

FAMILIES = (
    scores, chat, messages, completions, systemone, decisions, generative, tokens, models, health, status, dashboard,
)  # fmt: skip


def build_app(gateway: Gateway) -> Front:
    """Families in order of how often they are asked: the router looks from the top."""
    routes: list[BaseRoute] = [route for family in FAMILIES for route in family.routes(gateway)]
    return Front(gateway, routes)
