"""Langfuse: attributes `langfuse.observation.input|output`, and its own observations `{type: "GENERATION", ...}`.

Input and output hold whatever the SDK was given: messages, a request, text, variables.
"""

from mainspring.errors import SpanError
from mainspring.text.formats._reading import Reading, label
from mainspring.text.formats._telemetry import telemetry
from mainspring.text.formats._values import read_input_value, read_output_value
from mainspring.text.span import Json, ReadSpan

NAME = "langfuse"
_INPUT, _OUTPUT = "langfuse.observation.input", "langfuse.observation.output"
_TYPES = frozenset(("GENERATION", "SPAN", "EVENT", "AGENT", "CHAIN", "TOOL", "RETRIEVER", "EMBEDDING", "EVALUATOR"))
_WITHOUT = {"TOOL": "a tool execution", "RETRIEVER": "a retrieval", "EMBEDDING": "an embedding call"}


def matches(data: Json) -> bool:
    return _is_observation(data) or ((span := telemetry(data)) is not None and span.has(_INPUT, _OUTPUT))


def _is_observation(data: Json) -> bool:
    """Its types are in capitals; `input` and `output` may be null."""
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        return False
    return data["type"] in _TYPES and ("input" in data or "output" in data)


def read(data: Json) -> ReadSpan:
    if _is_observation(data):
        return _read_observation(data)
    span = telemetry(data)
    if span is None or not span.has(_INPUT, _OUTPUT):
        raise SpanError("no langfuse.observation.input")
    span.refuse()
    r = Reading(NAME, span.path(_INPUT))
    read_input_value(r, span.take(_INPUT), span.path(_INPUT))
    read_output_value(r, span.take(_OUTPUT), span.path(_OUTPUT))
    key = "langfuse.observation.model.name"
    r.model = label(span.attributes.get(key)) or r.model
    if r.model == span.attributes.get(key):
        span.take(key)
    span.leave(r)
    return r.done()


def _read_observation(data: dict[str, Json]) -> ReadSpan:
    if reason := _WITHOUT.get(data["type"]):
        raise SpanError(f"{reason} holds no conversation", param="type")
    r = Reading(NAME, "input")
    read_input_value(r, data.get("input"), "input")
    read_output_value(r, data.get("output"), "output")
    r.model = label(data.get("model")) or r.model
    r.unread(data, "", ("type", "input", "output", "model"))
    return r.done()
