"""OpenTelemetry GenAI, oldest: `gen_ai.prompt` and `gen_ai.completion`, whole or flattened to a key a field.

Whole values are JSON strings of anything; flattened ones read `gen_ai.prompt.0.role`,
`gen_ai.completion.0.tool_calls.0.name`, definitions `llm.request.functions.0.name`. Also in events
`gen_ai.content.prompt` and `gen_ai.content.completion`.
"""

from mainspring.errors import SpanError
from mainspring.text.formats._messages import read_message
from mainspring.text.formats._reading import Reading, entries, join
from mainspring.text.formats._telemetry import Telemetry, telemetry
from mainspring.text.formats._tools import read_tools
from mainspring.text.formats._values import read_choices, read_input_value, read_output_value
from mainspring.text.formats.otel import read_head
from mainspring.text.span import Json, ReadSpan

NAME = "otel-flat"
_PROMPT, _COMPLETION = "gen_ai.prompt", "gen_ai.completion"
_EVENTS = frozenset(("gen_ai.content.prompt", "gen_ai.content.completion"))


def matches(data: Json) -> bool:
    span = telemetry(data)
    return span is not None and (span.has(_PROMPT, _COMPLETION) or span.has_event(_EVENTS))


def read(data: Json) -> ReadSpan:
    span = telemetry(data)
    if span is None or not (span.has(_PROMPT, _COMPLETION) or span.has_event(_EVENTS)):
        raise SpanError("no gen_ai.prompt or gen_ai.completion")
    span.refuse()
    r = Reading(NAME, span.path(_PROMPT))
    if (prompt := span.take(_PROMPT)) is not None:
        read_input_value(r, prompt, span.path(_PROMPT))
    if tree := span.take_tree(_PROMPT):
        for path, value in entries(tree, span.path(_PROMPT)):
            r.input += read_message(r, value, path, "user")
    if (completion := span.take(_COMPLETION)) is not None:
        read_output_value(r, completion, span.path(_COMPLETION))
    if tree := span.take_tree(_COMPLETION):
        read_choices(r, tree, span.path(_COMPLETION))
    _read_events(r, span)
    read_tools(r, span.take_tree("llm.request.functions") or None, span.path("llm.request.functions"))
    read_head(r, span)
    span.leave(r)
    return r.done()


def _read_events(r: Reading, span: Telemetry) -> None:
    for event in span.take_events(_EVENTS):
        if (value := event.fields.get(_PROMPT)) is not None:
            read_input_value(r, value, join(event.where, _PROMPT))
        if (value := event.fields.get(_COMPLETION)) is not None:
            read_output_value(r, value, join(event.where, _COMPLETION))
        r.unread(event.fields, event.where, (_PROMPT, _COMPLETION))
