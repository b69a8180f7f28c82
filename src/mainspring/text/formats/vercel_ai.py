"""Vercel AI SDK telemetry: `ai.prompt`, `ai.prompt.messages`, `ai.response.text|object|toolCalls`, older `ai.result.*`.

The outer span has the prompt as the caller gave it, the inner one (`doGenerate`, `doStream`) the messages sent; with
both, the messages are read.
"""

from mainspring.errors import SpanError
from mainspring.text.formats._messages import read_message, read_messages
from mainspring.text.formats._reading import Reading, compact, container, decoded, label
from mainspring.text.formats._telemetry import Telemetry, telemetry
from mainspring.text.formats._tools import read_tools
from mainspring.text.formats._values import read_input_value
from mainspring.text.span import Json, ReadSpan

NAME = "vercel-ai"
_PROMPT, _MESSAGES = "ai.prompt", "ai.prompt.messages"
_RESULTS = ("ai.response", "ai.result")


def matches(data: Json) -> bool:
    span = telemetry(data)
    return span is not None and span.has(_PROMPT, *(f"{key}.{side}" for key in _RESULTS for side in ("text", "object")))


def read(data: Json) -> ReadSpan:
    span = telemetry(data)
    if span is None or not span.has("ai"):
        raise SpanError("no ai.* attributes")
    span.refuse()
    r = Reading(NAME, span.path(_MESSAGES if span.has(_MESSAGES) else _PROMPT))
    if (messages := container(r, span.take(_MESSAGES), span.path(_MESSAGES))) is not None:
        r.input += read_messages(r, messages, span.path(_MESSAGES))
    elif (prompt := span.take(_PROMPT)) is not None:
        read_input_value(r, prompt, span.path(_PROMPT))
    read_tools(r, span.take("ai.prompt.tools"), span.path("ai.prompt.tools"))
    for root in _RESULTS:
        if not r.output:
            _read_answer(r, span, root)
    _read_head(r, span)
    span.leave(r)
    return r.done()


def _read_answer(r: Reading, span: Telemetry, root: str) -> None:
    """Reasoning, text or object, and calls are one assistant message."""
    keys = [f"{root}.{name}" for name in ("reasoning", "text", "object", "files", "toolCalls")]
    found = {key: value for key in keys if (value := span.take(key)) is not None}
    if not found:
        return
    parts: list[Json] = []
    for key, value in found.items():
        if key.endswith(".reasoning"):
            parts.append({"type": "reasoning", "text": compact(value)})
        elif key.endswith((".text", ".object")):
            parts.append({"type": "text", "text": compact(value)})
        else:
            value = decoded(r, value, span.path(key))
            kind = "file" if key.endswith(".files") else "tool-call"
            values = value if isinstance(value, list) else [value]
            parts += [{**inner, "type": kind} if isinstance(inner, dict) else inner for inner in values]
    r.answer(read_message(r, {"role": "assistant", "content": parts}, span.path(root)), span.path(root))


def _read_head(r: Reading, span: Telemetry) -> None:
    for key in ("ai.response.model", "ai.model.id"):
        if r.model is None and (found := label(span.attributes.get(key))):
            r.model = found
            span.take(key)
    for root in _RESULTS:
        if r.finish_reason is None:
            r.finish_reason = label(span.take(f"{root}.finishReason"))
