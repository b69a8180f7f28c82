"""What the generating routes share: begin within the client's patience, then stream or gather."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mainspring.errors import MainspringError
from mainspring.gateway.body import attended
from mainspring.gateway.calls import Stages
from mainspring.gateway.errors import Surface, body_of
from mainspring.gateway.generation.asking import GenerateCall
from mainspring.gateway.generation.choice import Step
from mainspring.gateway.generation.events import EventStream, data
from mainspring.gateway.generation.run import Begun, begin
from mainspring.gateway.headers import timing_headers
from mainspring.gateway.routes._once import answered_once
from mainspring.gateway.visit import Visit

Events = Callable[[Begun], AsyncGenerator[bytes, None]]
Gather = Callable[[Begun], Any]
"""Awaited with what was begun; gives what becomes JSON."""


async def streamed(visit: Visit, request: Request, call: GenerateCall, events: Events, surface: Surface) -> Response:
    """A refusal is an answer with its status; from the first event on a fault is an event."""
    begun = await attended(request, begin(visit.gateway, call))
    visit.stages = begun.stages

    async def told() -> AsyncGenerator[bytes, None]:
        async with aclosing(begun), aclosing(events(begun)) as source:
            async for event in source:
                yield event

    return EventStream(
        visit, told(), lambda error: fault_of(error, surface), timing_headers(begun.stages), closing=begun.aclose
    )


async def gathered(visit: Visit, request: Request, body: bytes, call: GenerateCall, gather: Gather) -> Response:
    """One answer when all of it is there; once for all requests with one idempotency key."""

    async def compute() -> tuple[Any, Stages]:
        begun = await begin(visit.gateway, call)
        async with aclosing(begun):
            found = await gather(begun)
        return found, begun.stages

    return await answered_once(visit, request, body, compute)


def fault_of(error: MainspringError, surface: Surface) -> bytes:
    """The event of a fault on the way."""
    return data(body_of(error, surface), b"error" if surface == "anthropic" else b"")


def json_event(value: Any, name: bytes = b"") -> bytes:
    return data(msgspec.json.encode(value), name)


async def steps_of(begun: Begun) -> AsyncGenerator[Step, None]:
    async with aclosing(begun.steps()) as steps:
        async for step in steps:
            yield step
