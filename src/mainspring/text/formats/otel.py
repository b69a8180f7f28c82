"""OpenTelemetry GenAI, current: `gen_ai.input.messages` and its siblings, JSON strings or structured.

On a span, or on the event `gen_ai.client.inference.operation.details` by itself or among a span's events.
Source: semantic conventions for generative AI, JSON schemas of input and output messages.
"""

from mainspring.errors import SpanError
from mainspring.text.formats._messages import is_message, read_message, read_messages
from mainspring.text.formats._reading import Reading, container, entries, label
from mainspring.text.formats._telemetry import Telemetry, finish_reason, telemetry
from mainspring.text.formats._tools import read_tools
from mainspring.text.formats._values import read_system, take_finish
from mainspring.text.span import Json, ReadSpan

NAME = "otel"
_KEYS = ("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions")


def matches(data: Json) -> bool:
    span = telemetry(data)
    return span is not None and span.has(*_KEYS)


def read(data: Json) -> ReadSpan:
    span = telemetry(data)
    if span is None:
        raise SpanError("no gen_ai attributes")
    if not span.has(*_KEYS):
        span.refuse()
        raise SpanError("no gen_ai.input.messages: the instrumentation did not capture content")
    span.refuse()
    r = Reading(NAME, span.path(_KEYS[0]))
    read_system(r, _container(r, span, "gen_ai.system_instructions"), span.path("gen_ai.system_instructions"))
    r.input += read_messages(r, _container(r, span, "gen_ai.input.messages"), span.path("gen_ai.input.messages"))
    _read_output(r, _container(r, span, "gen_ai.output.messages"), span.path("gen_ai.output.messages"))
    read_tools(r, _container(r, span, "gen_ai.tool.definitions"), span.path("gen_ai.tool.definitions"))
    read_head(r, span)
    span.leave(r)
    return r.done()


def _container(r: Reading, span: Telemetry, key: str) -> Json:
    return container(r, span.take(key), span.path(key))


def _read_output(r: Reading, value: Json, where: str) -> None:
    turns = []
    for path, inner in entries(value, where):
        if isinstance(inner, dict) and is_message(inner):
            take_finish(r, inner)
            inner = {key: field for key, field in inner.items() if key != "finish_reason"}
        turns += read_message(r, inner, path, "assistant")
    r.answer(turns, where)


def read_head(r: Reading, span: Telemetry) -> None:
    """Model and finish reason, common to all of OpenTelemetry's generations."""
    requested, answered = span.attributes.get("gen_ai.request.model"), span.attributes.get("gen_ai.response.model")
    r.model = label(answered, requested)
    span.take("gen_ai.response.model" if r.model == answered else "gen_ai.request.model")
    key = "gen_ai.response.finish_reasons"
    if r.finish_reason is None:
        finish_reason(r, span.take(key), span.path(key))
