"""OpenTelemetry GenAI, older: one event a message (`gen_ai.user.message`), one a choice (`gen_ai.choice`).

The events of a span, a list of log records, or one record; body or attributes carry the message, and some SDKs put it
as JSON into the attribute `gen_ai.event.content`.
"""

from mainspring.errors import SpanError
from mainspring.text.formats._messages import read_message
from mainspring.text.formats._reading import Reading, decoded, join
from mainspring.text.formats._telemetry import Event, telemetry
from mainspring.text.formats._values import read_choices
from mainspring.text.formats.otel import read_head
from mainspring.text.span import Json, ReadSpan, Role

NAME = "otel-events"
_ROLES: dict[str, Role] = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_CHOICE = "gen_ai.choice"
_EVENTS = frozenset((*_ROLES, _CHOICE))
_METADATA = frozenset((
    "gen_ai.system", "gen_ai.provider.name", "gen_ai.event.content", "event_name", "eventName", "timestamp", "time",
    "time_unix_nano", "timeUnixNano", "observedTimeUnixNano", "observed_timestamp", "severity_number",
    "severity_text", "severityNumber", "severityText", "trace_id", "span_id", "trace_flags", "traceId", "spanId",
    "traceFlags", "flags", "resource", "droppedAttributesCount",
))  # fmt: skip


def matches(data: Json) -> bool:
    span = telemetry(data)
    return span is not None and span.has_event(_EVENTS)


def read(data: Json) -> ReadSpan:
    span = telemetry(data)
    if span is None or not span.has_event(_EVENTS):
        raise SpanError("no gen_ai message events")
    span.refuse()
    r = Reading(NAME, "events")
    for event in span.take_events(_EVENTS):
        fields = _payload(r, event)
        if event.name == _CHOICE:
            read_choices(r, [_choice(fields)], event.where)
        else:
            r.input += read_message(r, {"role": _ROLES[event.name], **fields}, event.where)
    read_head(r, span)
    span.leave(r)
    r.split_answer()
    return r.done()


def _payload(r: Reading, event: Event) -> dict[str, Json]:
    content = decoded(r, event.fields.get("gen_ai.event.content"), join(event.where, "gen_ai.event.content"))
    metadata = {key: value for key, value in event.fields.items() if key in _METADATA}
    fields = {key: value for key, value in event.fields.items() if key not in _METADATA}
    r.unread(metadata, event.where, ("gen_ai.event.content",))
    if isinstance(content, dict):
        return {**fields, **content}
    return fields if content is None else {"content": content, **fields}


def _choice(fields: dict[str, Json]) -> dict[str, Json]:
    """`{message: {...}, finish_reason}`; calls that stand beside the message belong to it; a message may be text."""
    message = fields.get("message")
    if isinstance(message, str):
        message = {"content": message}
    if not isinstance(message, dict):
        return fields
    beside = {key: fields[key] for key in ("tool_calls",) if fields.get(key) and not message.get(key)}
    return {**{key: value for key, value in fields.items() if key not in beside}, "message": {**message, **beside}}
