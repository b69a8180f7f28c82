"""`POST /v1/chat/completions`: a conversation in, the next message out, whole or as events."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.gateway.body import decode
from mainspring.gateway.generation.asking import GenerateCall
from mainspring.gateway.generation.chat_shape import ChatChunks, ChatMessage, chat_answer
from mainspring.gateway.generation.openai import conversation_of, writing_of
from mainspring.gateway.generation.run import Begun
from mainspring.gateway.generation.usage import openai_usage
from mainspring.gateway.routes._streams import gathered, json_event, steps_of, streamed
from mainspring.gateway.schemas_openai import ChatIn
from mainspring.gateway.service import Gateway
from mainspring.gateway.visit import visit_of

PATHS = ("/v1/chat/completions", "/chat/completions")
DONE = b"data: [DONE]\n\n"
_DECODER = msgspec.json.Decoder(ChatIn)


def routes(_gateway: Gateway) -> list[BaseRoute]:
    async def chat(request: Request) -> Response:
        visit = visit_of(request)
        visit.route = PATHS[0]
        terms = await visit.terms()
        asked, body = await decode(request, _DECODER)
        call = GenerateCall(
            model=asked.model, prompts=(conversation_of(asked),), writing=writing_of(asked), terms=terms,
            size=len(body),
        )  # fmt: skip
        if not asked.stream:
            return await gathered(visit, request, body, call, answer)
        with_usage = asked.stream_options is not None and asked.stream_options.include_usage
        return await streamed(visit, request, call, lambda begun: events(begun, with_usage), "openai")

    return [Route(path, chat, methods=["POST"]) for path in PATHS]


async def answer(begun: Begun) -> Any:
    messages = [ChatMessage() for _ in begun.runs]
    async for step in steps_of(begun):
        messages[step.index].take(step)
    return chat_answer(begun, messages, usage_of(begun))


async def events(begun: Begun, with_usage: bool) -> AsyncGenerator[bytes, None]:
    chunks = ChatChunks(begun, with_usage=with_usage)
    async for step in steps_of(begun):
        for chunk in chunks.of_step(step):
            yield json_event(chunk)
    if with_usage:
        yield json_event(chunks.of_usage(usage_of(begun)))
    yield DONE


def usage_of(begun: Begun) -> dict[str, Any]:
    return openai_usage(begun.prompt_tokens, begun.tally(), begun.call.writing.choices)
