import json

import pytest

from mainspring.errors import SpanError
from mainspring.text.formats import read_span
from mainspring.text.span import Media, Message, Reasoning, Text, ToolCall, ToolDefinition, ToolResult

INPUT = [
    {"role": "user", "parts": [{"type": "text", "content": "Weather?"}]},
    {"role": "assistant", "parts": [
        {"type": "reasoning", "content": "think"},
        {"type": "tool_call", "id": "1", "name": "get", "arguments": {"city": "Paris"}}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": {"rain": True}}]},
]  # fmt: skip
OUTPUT = [{"role": "assistant", "parts": [{"type": "text", "content": "Rain."}], "finish_reason": "stop"}]
TOOLS = [{"type": "function", "name": "get", "description": "d", "parameters": {"type": "object"}}]
SYSTEM = [{"type": "text", "content": "Be brief."}]
STRUCTURED = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.input.messages": INPUT,
    "gen_ai.output.messages": OUTPUT,
    "gen_ai.system_instructions": SYSTEM,
    "gen_ai.tool.definitions": TOOLS,
}
ENCODED = {key: value if isinstance(value, str) else json.dumps(value) for key, value in STRUCTURED.items()}


def otlp(value: object) -> dict:
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [{"key": key, "value": otlp(inner)} for key, inner in value.items()]}}
    if isinstance(value, list):
        return {"arrayValue": {"values": [otlp(inner) for inner in value]}}
    if isinstance(value, bool):
        return {"boolValue": value}
    return {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}


def pairs(attributes: dict) -> list:
    return [{"key": key, "value": otlp(value)} for key, value in attributes.items()]


DETAILS = "gen_ai.client.inference.operation.details"


@pytest.mark.parametrize(
    "data",
    [
        STRUCTURED,
        ENCODED,
        {"name": "chat m", "attributes": STRUCTURED},
        {"name": "chat m", "attributes": pairs(STRUCTURED), "traceId": "00"},
        {"name": "chat m", "attributes": pairs(ENCODED)},
        {"name": DETAILS, "attributes": STRUCTURED},
        {"eventName": DETAILS, "attributes": pairs(STRUCTURED)},
        {"event_name": DETAILS, "body": STRUCTURED},
        {"name": "chat m", "attributes": {"gen_ai.request.model": "m"}, "events": [
            {"name": DETAILS, "attributes": STRUCTURED}]},
        {"attributes": {"gen_ai": {"request": {"model": "m"}, "input": {"messages": INPUT},
            "output": {"messages": OUTPUT}, "system_instructions": SYSTEM, "tool": {"definitions": TOOLS}}}},
        {key: json.dumps(value) for key, value in ENCODED.items() if key != "gen_ai.operation.name"}
        | {"gen_ai.request.model": "m"},
    ],
)  # fmt: skip
def test_every_carrier_reads_alike(data: dict) -> None:
    read = read_span(data)
    assert read.format == "otel"
    span = read.span
    assert span.input == (
        Message("system", (Text("Be brief."),)),
        Message("user", (Text("Weather?"),)),
        Message("assistant", (Reasoning("think"), ToolCall("get", {"city": "Paris"}, "1"))),
        Message("tool", (ToolResult({"rain": True}, "1"),)),
    )
    assert span.output == (Message("assistant", (Text("Rain."),)),)
    assert span.tools == (ToolDefinition("get", "d", {"type": "object"}),)
    assert (span.model, span.finish_reason) == ("m", "stop")


def with_parts(*parts: dict) -> dict:
    return {"gen_ai.input.messages": [{"role": "user", "parts": list(parts)}], "gen_ai.output.messages": OUTPUT}


@pytest.mark.parametrize(
    ("part", "media"),
    [
        (
            {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "QUJD"},
            Media("image", "image/png"),
        ),
        ({"type": "file", "modality": "video", "file_id": "f1"}, Media("video", None, "f1")),
        ({"type": "uri", "modality": "audio", "uri": "https://x/y"}, Media("audio", None, "https://x/y")),
    ],
)
def test_media(part: dict, media: Media) -> None:
    read = read_span(with_parts(part))
    assert read.span.input[0].parts == (media,)
    assert [(note.kind, note.where) for note in read.notes] == [("placeholder", "gen_ai.input.messages[0].parts[0]")]
    assert "QUJD" not in repr(read)


def test_unknown_part_is_shown_as_json_and_noted() -> None:
    read = read_span(with_parts({"type": "mood", "value": {"joy": 1}}))
    assert read.span.input[0].text == '{"type":"mood","value":{"joy":1}}'
    assert read.notes[0].where == "gen_ai.input.messages[0].parts[0]"


def test_server_tools_split_the_message() -> None:
    parts = [
        {"type": "server_tool_call", "id": "1", "name": "search", "server_tool_call": {"type": "web", "q": "a"}},
        {"type": "server_tool_call_response", "id": "1", "server_tool_call_response": {"type": "web", "hits": 1}},
        {"type": "text", "content": "done"},
    ]
    data = with_parts({"type": "text", "content": "go"}) | {
        "gen_ai.output.messages": [{"role": "assistant", "parts": parts, "finish_reason": "stop"}]
    }
    read = read_span(data)
    assert [message.role for message in read.span.input] == ["user", "assistant", "tool"]
    assert read.span.output == (Message("assistant", (Text("done"),)),)
    assert [note.kind for note in read.notes if note.kind == "moved"] == ["moved"]


def test_several_choices() -> None:
    assert len(read_span(STRUCTURED | {"gen_ai.output.messages": OUTPUT * 2}).span.output) == 2


def test_no_output() -> None:
    assert read_span({"gen_ai.input.messages": INPUT}).span.output == ()


def test_an_agents_state_repeats_its_input() -> None:
    again = STRUCTURED | {"gen_ai.output.messages": INPUT + OUTPUT, "gen_ai.system_instructions": None}
    assert read_span(again).span.output == (Message("assistant", (Text("Rain."),)),)
    assert len(read_span(again).span.input) == 3


@pytest.mark.parametrize("cut", ['[{"role":"user","pa', '[{"role": "user"}'])
def test_cut_attribute(cut: str) -> None:
    with pytest.raises(SpanError, match="broken JSON") as caught:
        read_span({"gen_ai.input.messages": cut, "gen_ai.output.messages": OUTPUT})
    assert caught.value.param == "gen_ai.input.messages"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "e"}, "embedding"),
        ({"gen_ai.operation.name": "embeddings", "gen_ai.input.messages": INPUT}, "embedding"),
        ({"attributes": {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "x"}}, "tool execution"),
        ({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, "did not capture"),
    ],
)
@pytest.mark.parametrize("name", [None, "otel"])
def test_no_conversation(data: dict, reason: str, name: str | None) -> None:
    with pytest.raises(SpanError, match=reason):
        read_span(data, name)
