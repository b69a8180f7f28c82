"""`build_app(gateway)`: the ASGI application, a file of routes a family behind one front."""

from starlette.routing import BaseRoute

from mainspring.gateway.front import Front
from mainspring.gateway.routes import dashboard, decisions, generative, health, models, scores, status, systemone
from mainspring.gateway.service import Gateway

FAMILIES = (scores, systemone, decisions, generative, models, health, status, dashboard)


def build_app(gateway: Gateway) -> Front:
    """Families in order of how often they are asked: the router looks from the top."""
    routes: list[BaseRoute] = [route for family in FAMILIES for route in family.routes(gateway)]
    return Front(gateway, routes)
