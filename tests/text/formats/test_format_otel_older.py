import json

import pytest

from mainspring.text.formats import read_span
from mainspring.text.span import Message, Text, ToolCall, ToolDefinition, ToolResult

CALL = {"id": "1", "type": "function", "function": {"name": "get", "arguments": '{"city":"Paris"}'}}
EXPECTED = (
    Message("system", (Text("Be brief."),)),
    Message("user", (Text("Weather?"),)),
    Message("assistant", (ToolCall("get", {"city": "Paris"}, "1"),)),
    Message("tool", (ToolResult("rain", "1"),)),
)
BODIES = [
    ("gen_ai.system.message", {"content": "Be brief."}),
    ("gen_ai.user.message", {"content": "Weather?"}),
    ("gen_ai.assistant.message", {"tool_calls": [CALL]}),
    ("gen_ai.tool.message", {"content": "rain", "id": "1"}),
    ("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Rain."}}),
]


@pytest.mark.parametrize(
    "data",
    [
        [{"name": name, "body": body} for name, body in BODIES],
        [{"event_name": name, "attributes": {"gen_ai.system": "openai"}, "body": body} for name, body in BODIES],
        [{"event.name": name, **body} for name, body in BODIES],
        [{"attributes": {"event.name": name}, "body": body, "timestamp": 1} for name, body in BODIES],
        {"name": "chat m", "events": [{"name": name, "attributes": body} for name, body in BODIES]},
        {"name": "chat m", "attributes": {"gen_ai.request.model": "m"}, "events": [
            {"name": name, "attributes": {"gen_ai.event.content": json.dumps(body)}} for name, body in BODIES]},
    ],
)  # fmt: skip
def test_events(data: object) -> None:
    read = read_span(data)
    assert read.format == "otel-events"
    assert read.span.input == EXPECTED
    assert read.span.output == (Message("assistant", (Text("Rain."),)),)
    assert read.span.finish_reason == "stop"


def test_choices_with_calls_beside_the_message() -> None:
    events = [*BODIES[:2], ("gen_ai.choice", {"message": {}, "tool_calls": [CALL]}), BODIES[4]]
    span = read_span([{"name": name, "body": body} for name, body in events]).span
    assert span.output[0].parts == (ToolCall("get", {"city": "Paris"}, "1"),)
    assert len(span.output) == 2


def test_other_events_are_noted() -> None:
    events = [{"name": name, "attributes": body} for name, body in BODIES]
    read = read_span({"events": [*events, {"name": "exception", "attributes": {"exception.message": "boom"}}]})
    assert any(note.where == "events[5]" and "exception.message" in note.detail for note in read.notes)


FLAT = {
    "gen_ai.prompt.0.role": "system",
    "gen_ai.prompt.0.content": "Be brief.",
    "gen_ai.prompt.1.role": "user",
    "gen_ai.prompt.1.content": json.dumps([{"type": "text", "text": "Weather?"}]),
    "gen_ai.prompt.2.role": "assistant",
    "gen_ai.prompt.2.tool_calls.0.id": "1",
    "gen_ai.prompt.2.tool_calls.0.name": "get",
    "gen_ai.prompt.2.tool_calls.0.arguments": '{"city":"Paris"}',
    "gen_ai.prompt.10.role": "tool",
    "gen_ai.prompt.10.content": "rain",
    "gen_ai.prompt.10.tool_call_id": "1",
    "gen_ai.completion.0.role": "assistant",
    "gen_ai.completion.0.content": "Rain.",
    "gen_ai.completion.0.finish_reason": "stop",
    "llm.request.functions.0.name": "get",
    "llm.request.functions.0.parameters": '{"type":"object"}',
    "gen_ai.response.model": "m",
}


def test_flattened() -> None:
    read = read_span({"attributes": FLAT})
    assert read.format == "otel-flat"
    assert read.span.input == EXPECTED
    assert read.span.output == (Message("assistant", (Text("Rain."),)),)
    assert read.span.tools == (ToolDefinition("get", None, {"type": "object"}),)
    assert (read.span.model, read.span.finish_reason) == ("m", "stop")
    assert read.notes == ()


def test_flattened_paths_and_unread_fields() -> None:
    read = read_span(FLAT | {"gen_ai.prompt.1.mood": "glad", "gen_ai.prompt.1.content.0.text": "more"})
    assert [(note.where, note.detail) for note in read.notes] == [("gen_ai.prompt.1", "content.0.text, mood")]


@pytest.mark.parametrize(
    ("prompt", "completion"),
    [
        ("Weather?", "Rain."),
        (json.dumps([{"role": "user", "content": "Weather?"}]), json.dumps({"role": "assistant", "content": "Rain."})),
        (json.dumps({"messages": [{"role": "user", "content": "Weather?"}]}), json.dumps({"text": "Rain."})),
        ([{"role": "user", "content": "Weather?"}], [{"role": "assistant", "content": "Rain."}]),
    ],
)
def test_whole_values(prompt: object, completion: object) -> None:
    for data in (
        {"gen_ai.prompt": prompt, "gen_ai.completion": completion},
        {"events": [
            {"name": "gen_ai.content.prompt", "attributes": {"gen_ai.prompt": prompt}},
            {"name": "gen_ai.content.completion", "attributes": {"gen_ai.completion": completion}}]},
    ):  # fmt: skip
        read = read_span(data)
        assert read.format == "otel-flat"
        assert read.span.input == (Message("user", (Text("Weather?"),)),)
        assert read.span.output == (Message("assistant", (Text("Rain."),)),)
