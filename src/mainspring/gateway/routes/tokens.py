"""`POST /tokenize` and `/detokenize`: what a model's vocabulary makes of a text or a conversation, and back."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.gateway.assemble import tokens_of
from mainspring.gateway.body import answer, decode
from mainspring.gateway.calls import Stages
from mainspring.gateway.errors import ValidationError
from mainspring.gateway.generation.openai import conversation_of
from mainspring.gateway.generation.prompts import written
from mainspring.gateway.generation.run import SMALL_BYTES
from mainspring.gateway.routes.models import context_of
from mainspring.gateway.schemas_openai import ChatIn, DetokenizeIn, TokenizeIn
from mainspring.gateway.service import Gateway
from mainspring.gateway.visit import visit_of

_TOKENIZE = msgspec.json.Decoder(TokenizeIn)
_DETOKENIZE = msgspec.json.Decoder(DetokenizeIn)


def routes(gateway: Gateway) -> list[BaseRoute]:
    async def tokenize(request: Request) -> Response:
        """Of `prompt`, or of `messages` as the template has them with the prompt for a reply."""
        visit_of(request).route = "/tokenize"
        asked, body = await decode(request, _TOKENIZE)
        if (asked.prompt is None) == (asked.messages is None):
            raise ValidationError("prompt or messages", param="prompt")
        model = await gateway.find(asked.model)
        bundle = (await gateway.catalogue.assembler(model.bundle)).bundle

        def made() -> list[int]:
            if asked.messages is None:
                return [int(each) for each in tokens_of(bundle, asked.prompt, "prompt")]
            chat = ChatIn(messages=asked.messages, tools=asked.tools, chat_template_kwargs=asked.chat_template_kwargs)
            return [int(each) for each in written(bundle, conversation_of(chat), None).tokens]

        ids = await gateway.timed(made, Stages(), on_loop=len(body) <= SMALL_BYTES)
        found: dict[str, Any] = {"count": len(ids), "max_model_len": context_of(model), "tokens": ids}
        if asked.return_token_strs:
            found["token_strs"] = [bundle.tokenizer.decode([each]) for each in ids]
        return answer(found)

    async def detokenize(request: Request) -> Response:
        """Control tokens by their names."""
        visit_of(request).route = "/detokenize"
        asked, body = await decode(request, _DETOKENIZE)
        bundle = (await gateway.assembler_of(asked.model)).bundle
        ids = tokens_of(bundle, asked.tokens, "tokens")
        text = await gateway.timed(lambda: bundle.tokenizer.decode(ids), Stages(), on_loop=len(body) <= SMALL_BYTES)
        return answer({"prompt": text})

    return [
        *(Route(path, tokenize, methods=["POST"]) for path in ("/tokenize", "/v1/tokenize")),
        *(Route(path, detokenize, methods=["POST"]) for path in ("/detokenize", "/v1/detokenize")),
    ]
