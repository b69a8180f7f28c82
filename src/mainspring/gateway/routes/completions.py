"""`POST /v1/completions`: texts or token ids in, what follows them out. No template, no reading of tags.

Text is tokenised with control tokens disabled, as everywhere; who wants them sends token ids.
"""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.gateway.body import decode
from mainspring.gateway.errors import ValidationError
from mainspring.gateway.generation.asking import GenerateCall
from mainspring.gateway.generation.chat_shape import new_id
from mainspring.gateway.generation.choice import Step
from mainspring.gateway.generation.logprobs import completion_logprobs
from mainspring.gateway.generation.openai import texts_of_prompt, writing_of
from mainspring.gateway.generation.run import Begun
from mainspring.gateway.routes._streams import gathered, json_event, steps_of, streamed
from mainspring.gateway.routes.chat import DONE, usage_of
from mainspring.gateway.schemas_openai import CompletionIn
from mainspring.gateway.service import Gateway
from mainspring.gateway.visit import visit_of
from mainspring.text.reply.deltas import ContentText

PATHS = ("/v1/completions", "/completions")
DEFAULT_TOKENS = 16
"""OpenAI's, where nothing is said."""
Json = dict[str, Any]
_DECODER = msgspec.json.Decoder(CompletionIn)


def routes(_gateway: Gateway) -> list[BaseRoute]:
    async def completions(request: Request) -> Response:
        visit = visit_of(request)
        visit.route = PATHS[0]
        terms = await visit.terms()
        asked, body = await decode(request, _DECODER)
        call = GenerateCall(
            model=asked.model, prompts=texts_of_prompt(asked.prompt), writing=_writing(asked), terms=terms,
            field="prompt", size=len(body),
        )  # fmt: skip
        echo = bool(asked.echo)
        if not asked.stream:
            return await gathered(visit, request, body, call, lambda begun: answer(begun, echo))
        with_usage = asked.stream_options is not None and asked.stream_options.include_usage
        return await streamed(visit, request, call, lambda begun: events(begun, echo, with_usage), "openai")

    return [Route(path, completions, methods=["POST"]) for path in PATHS]


def _writing(asked: CompletionIn) -> Any:
    if asked.suffix:
        raise ValidationError("text is written behind the prompt only", param="suffix")
    if asked.best_of is not None and asked.best_of != (asked.n or 1):
        raise ValidationError("every reply that is written is sent: the same as n, or nothing", param="best_of")
    if asked.echo and asked.logprobs is not None:
        raise ValidationError("not together with echo: of a prompt there are none", param="logprobs")
    writing = writing_of(asked)
    if writing.max_tokens is None:
        writing = msgspec.structs.replace(writing, max_tokens=max(DEFAULT_TOKENS, writing.min_tokens))
    return writing


class Texts:
    """Choices on their way, and where each one's text has got to."""

    def __init__(self, begun: Begun, echo: bool) -> None:
        self.begun, self.echo = begun, echo
        self._offsets: dict[int, int] = {}
        self.head: Json = {
            "id": new_id("cmpl-"), "object": "text_completion", "created": begun.created, "model": begun.model,
            "system_fingerprint": begun.fingerprint,
        }  # fmt: skip

    def of_step(self, step: Step) -> Json:
        text = "".join(delta.text for delta in step.deltas if isinstance(delta, ContentText))
        if step.index not in self._offsets:
            self._offsets[step.index] = 0
            if self.echo:
                text = self.begun.prompt_of(step.index).text + text
        logprobs = None
        if self.begun.call.writing.logprobs >= 0:
            tokenizer = self.begun.ready[0].bundle.tokenizer
            logprobs, self._offsets[step.index] = completion_logprobs(step.tokens, tokenizer, self._offsets[step.index])
        choice: Json = {"index": step.index, "text": text, "logprobs": logprobs, "finish_reason": step.finish}
        if step.stop is not None:
            choice["stop_reason"] = step.stop
        return choice


async def answer(begun: Begun, echo: bool) -> Json:
    texts = Texts(begun, echo)
    choices: list[Json] = [{} for _ in begun.runs]
    async for step in steps_of(begun):
        _add(choices[step.index], texts.of_step(step))
    return {**texts.head, "choices": choices, "usage": usage_of(begun)}


def _add(choice: Json, more: Json) -> None:
    if not choice:
        choice.update(more)
        return
    text, logprobs = choice["text"] + more["text"], choice["logprobs"]
    if logprobs is not None:
        for name, values in more["logprobs"].items():
            logprobs[name] += values
    choice.update(more | {"text": text, "logprobs": logprobs})


async def events(begun: Begun, echo: bool, with_usage: bool) -> AsyncGenerator[bytes, None]:
    texts = Texts(begun, echo)
    more: Json = {"usage": None} if with_usage else {}
    async for step in steps_of(begun):
        yield json_event({**texts.head, "choices": [texts.of_step(step)], **more})
    if with_usage:
        yield json_event({**texts.head, "choices": [], "usage": usage_of(begun)})
    yield DONE
