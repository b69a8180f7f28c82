"""OpenInference: `llm.input_messages.N.message.*`, `llm.output_messages.N.*`, `llm.tools.N.tool.json_schema`.

Flattened keys or the nested form of exports. A side without messages falls back to `input.value` or `output.value`,
which is also the last resort for spans of no other convention.
"""

from mainspring.errors import SpanError
from mainspring.text.formats._messages import read_message
from mainspring.text.formats._reading import Reading, container, decoded, entries, join, label
from mainspring.text.formats._telemetry import Telemetry, telemetry
from mainspring.text.formats._tools import read_tools
from mainspring.text.formats._values import read_choices, read_input_value, read_output_value, take_finish
from mainspring.text.span import Json, ReadSpan

NAME = "openinference"
_MESSAGES = ("llm.input_messages", "llm.output_messages", "llm.prompts", "llm.choices")
_VALUES = ("input.value", "output.value")


def matches(data: Json) -> bool:
    span = telemetry(data)
    return span is not None and (span.has(*_MESSAGES) or (span.has(*_VALUES) and not span.has("ai")))


def read(data: Json) -> ReadSpan:
    span = telemetry(data)
    if span is None:
        raise SpanError("no llm.* attributes, no input.value")
    span.refuse()
    if not span.has(*_MESSAGES, *_VALUES):
        raise SpanError("neither llm.input_messages nor input.value: content was not captured")
    r = Reading(NAME, span.path("llm.input_messages" if span.has(*_MESSAGES) else "input.value"))
    _read_input(r, span)
    _read_output(r, span)
    key = "llm.tools"
    read_tools(r, _taken(r, span, key), span.path(key))
    r.model = label(span.take("llm.model_name"))
    span.leave(r)
    return r.done()


def _taken(r: Reading, span: Telemetry, prefix: str) -> Json:
    whole = container(r, span.take(prefix), span.path(prefix))
    return whole if whole is not None else span.take_tree(prefix) or None


def _read_input(r: Reading, span: Telemetry) -> None:
    for path, value in entries(_taken(r, span, _MESSAGES[0]), span.path(_MESSAGES[0])):
        r.input += read_message(r, value, path, "user")
    for path, value in entries(_taken(r, span, "llm.prompts"), span.path("llm.prompts")):
        prompt = value.get("prompt") if isinstance(value, dict) else value
        text = prompt.get("text") if isinstance(prompt, dict) else prompt
        r.input += read_message(r, text, join(path, "prompt.text"), "user")
    if not r.input and (value := span.take("input.value")) is not None:
        read_input_value(r, value, span.path("input.value"))


def _read_output(r: Reading, span: Telemetry) -> None:
    turns = []
    for path, value in entries(_taken(r, span, _MESSAGES[1]), span.path(_MESSAGES[1])):
        message = value.get("message") if isinstance(value, dict) else None
        if isinstance(message, dict):
            take_finish(r, message)
            value = {**value, "message": {key: inner for key, inner in message.items() if key != "finish_reason"}}
        turns += read_message(r, value, path, "assistant")
    if turns:
        r.answer(turns, span.path(_MESSAGES[1]))
    for path, value in entries(_taken(r, span, "llm.choices"), span.path("llm.choices")):
        completion = value.get("completion", value) if isinstance(value, dict) else value
        read_choices(r, [completion], join(path, "completion"))
    if not r.output and (value := span.take("output.value")) is not None:
        read_output_value(r, value, span.path("output.value"))
    if r.finish_reason is None:
        reason = decoded(r, span.take("llm.finish_reason"), span.path("llm.finish_reason"))
        r.finish_reason = label(reason)
