import json

import pytest

from mainspring.errors import SpanError
from mainspring.text.formats import read_span
from mainspring.text.span import Media, Message, Reasoning, Text, ToolCall, ToolDefinition, ToolResult

USER = {"role": "user", "content": "hi"}
SAID = {"role": "assistant", "content": "yo"}
HI = (Message("user", (Text("hi"),)),)
YO = (Message("assistant", (Text("yo"),)),)


@pytest.mark.parametrize("given", [[USER], {"messages": [USER]}, "hi", json.dumps([USER]), USER, [[USER]]])
@pytest.mark.parametrize(
    "said", [SAID, "yo", json.dumps(SAID), {"content": "yo"}, [SAID], {"choices": [{"message": SAID}]}]
)
def test_langfuse(given: object, said: object) -> None:
    for data in (
        {"id": "1", "type": "GENERATION", "model": "m", "input": given, "output": said, "usage": {"total": 1}},
        {"attributes": {"langfuse.observation.input": given, "langfuse.observation.output": said,
                        "langfuse.observation.model.name": "m", "gen_ai.prompt.0.content": "other"}},
    ):  # fmt: skip
        read = read_span(data)
        assert read.format == "langfuse"
        assert (read.span.input, read.span.output, read.span.model) == (HI, YO, "m")
        assert any("usage" in note.detail or "gen_ai.prompt.0.content" in note.detail for note in read.notes)


def test_langfuse_refusals() -> None:
    for kind in ("EMBEDDING", "TOOL", "RETRIEVER"):
        with pytest.raises(SpanError, match="no conversation"):
            read_span({"type": kind, "input": "a", "output": "b"})
    assert read_span({"type": "GENERATION", "input": "hi", "output": None}).span.output == ()


@pytest.mark.parametrize(
    "data",
    [
        {"input": json.dumps([USER]), "output": json.dumps(SAID), "log_type": "chat", "model": "m"},
        {"input": "hi", "output": "yo", "log_type": "text", "model": "m"},
        {"prompt_messages": [USER], "completion_message": SAID, "model": "m", "customer_identifier": "c"},
        {"input": "", "prompt_messages": [USER], "completion_message": SAID, "log_type": "chat", "model": "m"},
    ],
)
def test_respan(data: dict) -> None:
    read = read_span(data)
    assert read.format == "respan"
    assert (read.span.input, read.span.output, read.span.model) == (HI, YO, "m")


def test_respan_embedding_is_refused() -> None:
    with pytest.raises(SpanError, match="embedding"):
        read_span({"input": "x", "output": "[0.1]", "log_type": "embedding"})


def test_vercel() -> None:
    messages = [
        {"role": "user", "content": [
            {"type": "text", "text": "hi"},
            {"type": "image", "image": "QUJD", "mediaType": "image/png"},
            {"type": "file", "data": "https://x/y", "mediaType": "text/csv"}]},
        {"role": "assistant", "content": [
            {"type": "reasoning", "text": "hm"},
            {"type": "tool-call", "toolCallId": "1", "toolName": "f", "input": {"a": 1}}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "1", "toolName": "f",
                                      "output": {"type": "json", "value": {"b": 2}}}]},
    ]  # fmt: skip
    read = read_span({
        "ai.operationId": "ai.streamText.doStream",
        "ai.prompt": '{"prompt": "outer"}',
        "ai.prompt.messages": json.dumps(messages),
        "ai.prompt.tools": [json.dumps({"type": "function", "name": "f", "inputSchema": {"type": "object"}})],
        "ai.response.text": "yo",
        "ai.response.reasoning": "why",
        "ai.response.toolCalls": json.dumps([{"toolCallId": "2", "toolName": "f", "args": '{"a":2}'}]),
        "ai.response.finishReason": "tool-calls",
        "ai.model.id": "m",
    })  # fmt: skip
    assert read.format == "vercel-ai"
    assert read.span.input == (
        Message("user", (Text("hi"), Media("image", "image/png"), Media("file", "text/csv", "https://x/y"))),
        Message("assistant", (Reasoning("hm"), ToolCall("f", {"a": 1}, "1"))),
        Message("tool", (ToolResult({"b": 2}, "1", "f"),)),
    )
    assert read.span.output == (Message("assistant", (Reasoning("why"), Text("yo"), ToolCall("f", {"a": 2}, "2"))),)
    assert read.span.tools == (ToolDefinition("f", None, {"type": "object"}),)
    assert (read.span.model, read.span.finish_reason) == ("m", "tool-calls")
    assert any("ai.prompt" in note.detail.split(", ") for note in read.notes)
    assert "QUJD" not in repr(read)


def test_vercel_prompt_with_system_and_older_results() -> None:
    read = read_span({"ai.prompt": {"system": "sys", "prompt": "hi"}, "ai.result.text": "yo"})
    assert read.span.input == (Message("system", (Text("sys"),)), *HI)
    assert read.span.output == YO


@pytest.mark.parametrize("operation", ["ai.embed", "ai.embedMany.doEmbed", "ai.toolCall"])
def test_vercel_refusals(operation: str) -> None:
    with pytest.raises(SpanError, match="no conversation"):
        read_span({"ai.operationId": operation, "ai.toolCall.name": "f"})
