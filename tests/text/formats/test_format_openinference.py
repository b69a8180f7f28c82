import json

import pytest

from mainspring.errors import SpanError
from mainspring.text.formats import read_span
from mainspring.text.span import Media, Message, Text, ToolCall, ToolDefinition, ToolResult

MESSAGES = "llm.input_messages"
FLAT = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "m",
    f"{MESSAGES}.0.message.role": "user",
    f"{MESSAGES}.0.message.contents.0.message_content.type": "text",
    f"{MESSAGES}.0.message.contents.0.message_content.text": "Look",
    f"{MESSAGES}.0.message.contents.1.message_content.type": "image",
    f"{MESSAGES}.0.message.contents.1.message_content.image.image.url": "data:image/png;base64,QUJD",
    f"{MESSAGES}.1.message.role": "assistant",
    f"{MESSAGES}.1.message.tool_calls.0.tool_call.id": "1",
    f"{MESSAGES}.1.message.tool_calls.0.tool_call.function.name": "get",
    f"{MESSAGES}.1.message.tool_calls.0.tool_call.function.arguments": '{"a":1}',
    f"{MESSAGES}.2.message.role": "tool",
    f"{MESSAGES}.2.message.content": "rain",
    f"{MESSAGES}.2.message.tool_call_id": "1",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.content": "Rain.",
    "llm.output_messages.0.message.finish_reason": "stop",
    "llm.tools.0.tool.json_schema": json.dumps({"type": "function", "function": {"name": "get", "parameters": {}}}),
}


def nested(flat: dict) -> dict:
    """The form of exports: levels for dots, lists for ordinals."""
    root: dict = {}
    for key, value in flat.items():
        node, path = root, key.split(".")
        for step in path[:-1]:
            node = node.setdefault(step, {})
        node[path[-1]] = value
    return listed(root)


def listed(node: object) -> object:
    if not isinstance(node, dict):
        return node
    inner = {key: listed(value) for key, value in node.items()}
    return list(inner.values()) if inner and all(key.isdigit() for key in inner) else inner


@pytest.mark.parametrize("data", [FLAT, {"attributes": FLAT}, {"attributes": nested(FLAT), "name": "x"}])
def test_messages(data: dict) -> None:
    read = read_span(data)
    assert read.format == "openinference"
    assert read.span.input == (
        Message("user", (Text("Look"), Media("image", "image/png"))),
        Message("assistant", (ToolCall("get", {"a": 1}, "1"),)),
        Message("tool", (ToolResult("rain", "1"),)),
    )
    assert read.span.output == (Message("assistant", (Text("Rain."),)),)
    assert read.span.tools == (ToolDefinition("get", None, {}),)
    assert (read.span.model, read.span.finish_reason) == ("m", "stop")
    assert "QUJD" not in repr(read)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("hi", "yo"),
        ('{"messages":[{"role":"user","content":"hi"}],"temperature":1}', '{"choices":[{"message":{"content":"yo"}}]}'),
        ('{"messages":[[{"lc":1,"type":"constructor","id":["langchain","HumanMessage"],"kwargs":{"content":"hi"}}]]}',
         '{"generations":[[{"text":"yo","message":{"lc":1,"type":"constructor","id":["x","AIMessage"],'
         '"kwargs":{"content":"yo","type":"ai"}}}]]}'),
        ([{"type": "human", "content": "hi"}], {"type": "ai", "content": "yo"}),
        ([{"type": "human", "data": {"content": "hi"}}], [{"type": "ai", "data": {"content": "yo"}}]),
    ],
)  # fmt: skip
def test_values_alone(given: object, said: object) -> None:
    read = read_span({"input.value": given, "output.value": said, "openinference.span.kind": "CHAIN"})
    assert read.format == "openinference"
    assert read.span.input == (Message("user", (Text("hi"),)),)
    assert read.span.output == (Message("assistant", (Text("yo"),)),)


@pytest.mark.parametrize("value", ['{"question": "a", "context": "b"}', '{"input": "a", "context": "b"}', "[1, 2"])
def test_values_of_no_known_shape_stay_as_they_are(value: str) -> None:
    read = read_span({"input.value": value, "output.value": value})
    assert read.span.input[0].text == value
    assert read.span.output[0].text == value


@pytest.mark.parametrize("said", ['{"role": "engineer", "name": "Bo"}', '{"output": "x", "reason": "y"}'])
def test_structured_output_is_no_envelope(said: str) -> None:
    assert read_span({"input.value": "hi", "output.value": said}).span.output[0].text == said


def test_each_side_falls_back() -> None:
    only_input = {key: value for key, value in FLAT.items() if "output" not in key}
    assert read_span(only_input | {"output.value": "Yes."}).span.output[0].text == "Yes."
    assert read_span(only_input).span.output == ()


@pytest.mark.parametrize("kind", ["EMBEDDING", "TOOL", "RETRIEVER", "RERANKER"])
def test_other_kinds(kind: str) -> None:
    with pytest.raises(SpanError, match="no conversation"):
        read_span({"openinference.span.kind": kind, "input.value": "x", "output.value": "y"})
