import json

import pytest

from mainspring.errors import SpanError
from mainspring.text.formats import read_span
from mainspring.text.span import Media, Message, Reasoning, Text, ToolCall, ToolDefinition, ToolResult

USER = {"role": "user", "content": "hi"}
SAID = {"role": "assistant", "content": "yo"}
CHOICES = [{"index": 0, "message": SAID, "finish_reason": "stop"}]
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
COMPLETION = {"id": "c", "object": "chat.completion", "model": "m-1", "choices": CHOICES, "usage": {"total_tokens": 3}}


@pytest.mark.parametrize(
    "data",
    [
        {"messages": [USER], "response": COMPLETION},
        {"messages": [USER], "completion": COMPLETION},
        {"messages": [USER], "choices": CHOICES},
        {"messages": [USER], "response": "yo"},
        {"messages": [USER], "completion": SAID},
        {"messages": [USER], "output": SAID},
        {"messages": json.dumps([USER]), "response": json.dumps(COMPLETION)},
        {"request": {"model": "m", "messages": [USER]}, "response": COMPLETION},
        {"request": json.dumps({"messages": [USER]}), "response": json.dumps(COMPLETION)},
        {"request": {"body": {"messages": [USER]}}, "response": {"status_code": 200, "body": COMPLETION}},
        {"messages": [USER, SAID]},
        [USER, SAID],
        {"prompt": "hi", "choices": [{"text": "yo", "index": 0, "logprobs": None, "finish_reason": "stop"}]},
        {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yo"}]},
        json.dumps([USER, SAID]),
        json.dumps(json.dumps({"messages": [USER, SAID]})),
    ],
)
def test_carriers(data: object) -> None:
    read = read_span(data)
    assert read.format == "openai-chat"
    assert read.span.input == (Message("user", (Text("hi"),)),)
    assert read.span.output == (Message("assistant", (Text("yo"),)),)


def test_everything_about_a_pair() -> None:
    read = read_span({"request": {"model": "m", "messages": [USER], "tools": [TOOL], "temperature": 1}, "id": 7,
                      "response": COMPLETION | {"choices": CHOICES * 2}})  # fmt: skip
    assert read.span.tools == (ToolDefinition("f", "d", {"type": "object"}),)
    assert (read.span.model, read.span.finish_reason, len(read.span.output)) == ("m-1", "stop", 2)
    noted = {(note.where, note.detail) for note in read.notes}
    assert noted == {("request", "temperature"), ("", "id"), ("response", "id, object, usage")}


def test_a_failed_call_has_no_answer() -> None:
    read = read_span({"messages": [USER], "response": {"error": {"message": "overloaded"}}})
    assert read.span.output == ()
    assert [(note.where, note.detail) for note in read.notes] == [("response", "error")]


def test_no_answer_yet() -> None:
    for last in (USER, {"role": "tool", "content": "x"}):
        assert read_span([USER, SAID, last]).span.output == ()


ARGUMENTS = [
    ('{"a": 1}', {"a": 1}), ({"a": 1}, {"a": 1}), ('{"a": 1', '{"a": 1'), ("", ""), (None, None), ("[1]", "[1]"),
    ('"{\\"a\\": 1}"', {"a": 1}), ('{"a": 1, "a": 2}', '{"a": 1, "a": 2}'), ('{"a": NaN}', '{"a": NaN}'),
    ('{"a": "\\ud83d"}', {"a": "\ufffd"}), ("[" * 9999, "[" * 9999), ('{"a":' * 200 + "1" + "}" * 200,) * 2,
]  # fmt: skip


@pytest.mark.parametrize(("given", "kept"), ARGUMENTS)
def test_arguments(given: object, kept: object) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": given}}
    for message in (
        {"role": "assistant", "tool_calls": [call]},
        {"role": "assistant", "function_call": call["function"]},
    ):
        (part,) = read_span([USER, message]).span.output[0].parts
        assert isinstance(part, ToolCall)
        assert (part.name, part.arguments) == ("f", kept)


@pytest.mark.parametrize(
    ("content", "kept"),
    [("ok", "ok"), (None, ""), ({"a": 1}, {"a": 1}), ([{"type": "text", "text": "a"}, "b"], "a\nb"), (5, 5)],
)
def test_tool_results(content: object, kept: object) -> None:
    span = read_span([USER, {"role": "tool", "content": content}, SAID]).span
    assert span.input[1] == Message("tool", (ToolResult(kept),))
    named = {"role": "function", "name": "f", "content": content}
    assert read_span([USER, named, SAID]).span.input[1].parts == (ToolResult(kept, None, "f"),)


def test_parts() -> None:
    content = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
        {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}},
        {"type": "file", "file": {"file_id": "f1", "filename": "a.pdf"}},
    ]
    read = read_span([{"role": "user", "content": content}, SAID])
    assert read.span.input[0].parts == (
        Text("see"), Media("image", None, "https://x/y.png"), Media("image", "image/png"), Media("audio", "wav"),
        Media("file", None, "f1"),
    )  # fmt: skip
    assert sum(note.kind == "placeholder" for note in read.notes) == 4
    assert any("filename" in note.detail for note in read.notes)
    assert "QUJD" not in repr(read)


def test_reasoning_refusal_audio_and_name() -> None:
    message = {"role": "assistant", "name": "bo", "reasoning_content": "hm", "content": None, "refusal": "no",
               "audio": {"id": "a1", "data": "QUJD", "transcript": "spoken"}}  # fmt: skip
    said = read_span({"messages": [USER], "choices": [{"message": message}]}).span.output[0]
    assert said == Message("assistant", (Reasoning("hm"), Text("no"), Media("audio", None, "a1"), Text("spoken")), "bo")


def test_choices_beside_a_response_are_noted() -> None:
    read = read_span({"messages": [USER], "response": "yo", "choices": [{"message": SAID}]})
    assert ("", "choices") in {(note.where, note.detail) for note in read.notes}


def test_bad_role_has_its_path() -> None:
    with pytest.raises(SpanError) as caught:
        read_span({"request": {"messages": [USER, {"role": "judge", "content": "x"}]}, "response": "y"})
    assert caught.value.param == "request.messages[1].role"


ITEMS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "zz"},
    {"type": "function_call", "id": "fc", "call_id": "1", "name": "f", "arguments": '{"a":1}', "status": "completed"},
    {"type": "function_call_output", "call_id": "1", "output": "ok"},
]
OUTPUT = [{"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "yo"}]}]


@pytest.mark.parametrize(
    "data",
    [
        {"instructions": "sys", "input": ITEMS, "output": OUTPUT, "tools": [{"type": "function", "name": "f"}]},
        {"request": {"instructions": "sys", "input": ITEMS, "tools": [{"type": "function", "name": "f"}]},
         "response": {"object": "response", "status": "completed", "output": OUTPUT}},
        [{"role": "system", "content": "sys"}, *ITEMS, *OUTPUT],
    ],
)  # fmt: skip
def test_responses(data: object) -> None:
    read = read_span(data)
    assert read.format == "openai-responses"
    assert read.span.input == (
        Message("system", (Text("sys"),)),
        Message("user", (Text("hi"),)),
        Message("assistant", (Reasoning("hm"), ToolCall("f", {"a": 1}, "1"))),
        Message("tool", (ToolResult("ok", "1"),)),
    )
    assert read.span.output == (Message("assistant", (Text("yo"),)),)
    assert any("encrypted_content" in note.detail for note in read.notes)


def test_one_answer_of_many_items() -> None:
    output = [ITEMS[1], *OUTPUT, ITEMS[2], *OUTPUT]
    span = read_span({"input": "hi", "object": "response", "output": output, "status": "incomplete",
                      "incomplete_details": {"reason": "max_output_tokens"}}).span  # fmt: skip
    assert span.output == (
        Message("assistant", (Reasoning("hm"), Text("yo"), ToolCall("f", {"a": 1}, "1"), Text("yo"))),
    )


def test_tools_of_the_provider() -> None:
    ran = {"type": "mcp_call", "id": "x", "name": "f", "arguments": "{}", "output": "42"}
    read = read_span({"input": "hi", "output": [ran, *OUTPUT]})
    assert read.span.input[1:] == (
        Message("assistant", (ToolCall("f", {}, "x"),)),
        Message("tool", (ToolResult("42", "x", "f"),)),
    )
    assert read.span.output == (Message("assistant", (Text("yo"),)),)
