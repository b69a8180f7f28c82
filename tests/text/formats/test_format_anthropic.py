import pytest

from mainspring.text.formats import read_span
from mainspring.text.span import Media, Message, Reasoning, Text, ToolCall, ToolDefinition, ToolResult

CONTENT = [
    {"type": "thinking", "thinking": "hm", "signature": "sig"},
    {"type": "redacted_thinking", "data": "zz"},
    {"type": "text", "text": "yo"},
    {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},
]
REPLY = {
    "id": "msg",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": CONTENT,
    "stop_reason": "tool_use",
}
REQUEST = {
    "model": "m",
    "system": [{"type": "text", "text": "sys", "cache_control": {"type": "ephemeral"}}],
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
    "max_tokens": 10,
}


@pytest.mark.parametrize(
    "data",
    [
        {"request": REQUEST, "response": REPLY},
        REQUEST | {"response": REPLY},
        REQUEST | {"content": CONTENT, "stop_reason": "tool_use", "role": "assistant"},
        REQUEST | {"messages": [*REQUEST["messages"], {"role": "assistant", "content": CONTENT}]},
    ],
)
def test_carriers(data: dict) -> None:
    read = read_span(data)
    assert read.format == "anthropic"
    assert read.span.input == (Message("system", (Text("sys"),)), Message("user", (Text("hi"),)))
    assert read.span.output == (Message("assistant", (Reasoning("hm"), Text("yo"), ToolCall("f", {"a": 1}, "1"))),)
    assert read.span.tools == (ToolDefinition("f", "d", {"type": "object"}),)
    assert read.span.model == "m"
    details = " ".join(note.detail for note in read.notes)
    assert all(key in details for key in ("signature", "data", "cache_control", "max_tokens"))


def test_blocks_of_users() -> None:
    content = [
        {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "a"}], "is_error": True},
        {"type": "tool_result", "tool_use_id": "2", "content": [
            {"type": "text", "text": "see"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}]},
        {"type": "image", "source": {"type": "url", "url": "https://x/y"}},
        {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "QUJD"}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "block"}]}},
    ]  # fmt: skip
    read = read_span([{"role": "user", "content": content}])
    assert read.format == "anthropic"
    tool, user = read.span.input
    assert tool.parts[0] == ToolResult("a", "1")
    assert tool.parts[1] == ToolResult(
        [{"type": "text", "text": "see"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png"}}],
        "2",
    )
    assert user.parts == (
        Media("image", None, "https://x/y"), Text("plain"), Media("document", "application/pdf"), Text("block"),
    )  # fmt: skip
    assert "QUJD" not in repr(read)
    details = [note.detail for note in read.notes]
    assert any("is_error" in detail for detail in details)
    assert any("title" in detail for detail in details)


def test_server_tools_in_the_answer() -> None:
    content = [
        {"type": "server_tool_use", "id": "1", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "1", "content": [{"type": "web_search_result", "url": "u"}]},
        {"type": "text", "text": "found", "citations": [{"cited_text": "c"}]},
    ]
    read = read_span({"request": REQUEST, "response": REPLY | {"content": content}})
    assert [message.role for message in read.span.input] == ["system", "user", "assistant", "tool"]
    assert read.span.output[0].text == "found"
    assert any("citations" in note.detail for note in read.notes)
