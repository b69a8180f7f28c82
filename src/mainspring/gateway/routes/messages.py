"""`POST /v1/messages` as Anthropic has it, whole or as events; `/v1/messages/count_tokens`."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.gateway.body import answer, decode
from mainspring.gateway.calls import Stages
from mainspring.gateway.generation.anthropic import conversation_of, writing_of
from mainspring.gateway.generation.asking import GenerateCall
from mainspring.gateway.generation.message_shape import MessageBlocks
from mainspring.gateway.generation.prompts import count
from mainspring.gateway.generation.run import SMALL_BYTES, Begun
from mainspring.gateway.routes._streams import gathered, json_event, steps_of, streamed
from mainspring.gateway.schemas_anthropic import CountIn, MessagesIn
from mainspring.gateway.service import Gateway
from mainspring.gateway.visit import visit_of

PATHS = ("/v1/messages", "/messages")
_DECODER = msgspec.json.Decoder(MessagesIn)
_COUNT = msgspec.json.Decoder(CountIn)


def routes(gateway: Gateway) -> list[BaseRoute]:
    async def messages(request: Request) -> Response:
        visit = visit_of(request)
        visit.route = PATHS[0]
        terms = await visit.terms()
        asked, body = await decode(request, _DECODER)
        call = GenerateCall(
            model=asked.model, prompts=(conversation_of(asked),), writing=writing_of(asked), terms=terms,
            size=len(body),
        )  # fmt: skip
        if not asked.stream:
            return await gathered(visit, request, body, call, whole)
        return await streamed(visit, request, call, events, "anthropic")

    async def count_tokens(request: Request) -> Response:
        """Nothing is asked of the fleet."""
        visit_of(request).route = f"{PATHS[0]}/count_tokens"
        asked, body = await decode(request, _COUNT)
        bundle = (await gateway.assembler_of(asked.model)).bundle
        conversation = conversation_of(asked)
        tokens = await gateway.timed(lambda: count(bundle, conversation), Stages(), on_loop=len(body) <= SMALL_BYTES)
        return answer({"input_tokens": tokens})

    counts = [Route(f"{path}/count_tokens", count_tokens, methods=["POST"]) for path in PATHS]
    return [*(Route(path, messages, methods=["POST"]) for path in PATHS), *counts]


async def whole(begun: Begun) -> Any:
    blocks = MessageBlocks(begun)
    async for step in steps_of(begun):
        blocks.of_step(step)
    return blocks.whole()


async def events(begun: Begun) -> AsyncGenerator[bytes, None]:
    """`message_start` comes with the first tokens, so that clients measure what they mean to."""
    blocks, started = MessageBlocks(begun), False
    async for step in steps_of(begun):
        if not started:
            started = True
            yield _event(*blocks.start())
            yield _event("ping", {})
        for event in blocks.of_step(step):
            yield _event(*event)
    for event in blocks.end():
        yield _event(*event)


def _event(name: str, fields: dict[str, Any]) -> bytes:
    return json_event({"type": name, **fields}, name.encode())
