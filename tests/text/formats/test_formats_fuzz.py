"""Whatever the JSON, reading ends in a span or in a MainspringError, and generated messages lose no text."""

import copy
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainspring.errors import MainspringError
from mainspring.text.formats import FORMATS, read_span
from mainspring.text.formats.documents import read_document
from mainspring.text.span import Json, ReadSpan

FIXTURES = Path(__file__).parents[2] / "fixtures" / "spans"
KEYS = st.sampled_from(
    """input output span messages role content parts type text tool_calls function name arguments id response choices
    message request system instructions attributes events body key value gen_ai.input.messages gen_ai.output.messages
    gen_ai.prompt gen_ai.prompt.0.content gen_ai.prompt.0.role gen_ai.completion.0 llm.input_messages.0.message.role
    llm.input_messages.0.message.contents.0.message_content.type llm.tools.0.tool.json_schema input.value output.value
    ai.prompt ai.response.text ai.response.toolCalls langfuse.observation.input log_type prompt_messages tools image
    image_url url source data media_type summary kwargs lc from 0 1 stringValue arrayValue values kvlistValue
    finish_reason model usage resourceSpans scopeSpans spans object thinking gen_ai""".split()  # noqa: SIM905
) | st.text(max_size=4)
WORDS = st.sampled_from(
    """user assistant tool system human ai developer text image tool_use tool_result function_call reasoning message
    function_call_output GENERATION TOOL chat embedding constructor gen_ai.user.message gen_ai.choice base64 response
    data:image/png;base64,QUJD [] {} null [1 {"role":"user","content":"x"} [{"role":"user"}] thinking mcp_call
    """.split()  # noqa: SIM905
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=[]), max_size=6)
    | WORDS
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)
# Some shape of a span, so that readers are entered and not only refused.
SHAPES = st.sampled_from([
    ("messages",), ("span", "input"), ("input",), ("gen_ai.input.messages",), ("attributes",), ("events",),
    ("response",),
    ("output",), ("request",), ("gen_ai.output.messages",), ("llm.output_messages",), ("ai.prompt.messages",),
    ("instructions",), ("system",), ("tools",), ("choices",), ("prompt_messages",),
])  # fmt: skip
EASY = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def reads(data: Json, name: str | None = None) -> ReadSpan | None:
    try:
        read = read_span(data, name)
    except MainspringError:
        return None
    json.dumps(msgspec.to_builtins(read, str_keys=True), ensure_ascii=False, allow_nan=False).encode()
    return read


@EASY
@given(JSON, st.sampled_from([None, *FORMATS]))
def test_arbitrary_json(data: Json, name: str | None) -> None:
    reads(data, name)


@EASY
@given(JSON, JSON, SHAPES, SHAPES, st.sampled_from([None, *FORMATS]))
def test_arbitrary_json_in_the_shape_of_spans(a: Json, b: Json, to_a: tuple, to_b: tuple, name: str | None) -> None:
    data: dict = {}
    for path, value in ((to_a, a), (to_b, b)):
        node = data
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = value
    reads(data, name)


def corpus() -> list[Json]:
    spans: list[Json] = []
    for path in sorted(FIXTURES.glob("*.json")):
        data = json.loads(path.read_text("utf-8"))
        spans += data if isinstance(data, list) else [data]
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}]
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    chat = [{"role": "user", "content": parts}, {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "r"}]  # fmt: skip
    blocks = [{"type": "thinking", "thinking": "t"}, {"type": "tool_use", "id": "1", "name": "f", "input": {}},
              {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "x"}]},
              {"type": "document", "source": {"type": "text", "data": "d"}}]  # fmt: skip
    items = [{"type": "message", "role": "user", "content": "x"}, {"type": "reasoning", "summary": []},
             {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
             {"type": "function_call_output", "call_id": "1", "output": "r"}]  # fmt: skip
    said = {"role": "assistant", "content": "yo"}
    spans += [
        {"request": {"messages": chat, "tools": [{"type": "function", "function": {"name": "f"}}]},
         "response": {"choices": [{"message": said, "finish_reason": "stop"}] * 2}},
        {"system": "s", "messages": [{"role": "user", "content": blocks}], "response": {"type": "message", **said}},
        {"instructions": "s", "input": items, "output": [{"type": "message", **said}], "tools": []},
        {"span": {"input": chat, "output": said}},
        {"type": "GENERATION", "input": {"messages": chat}, "output": said},
        {"log_type": "chat", "input": json.dumps(chat), "output": json.dumps(said)},
        [{"name": "gen_ai.user.message", "body": {"content": "x"}},
         {"name": "gen_ai.choice", "body": {"message": said}}],
        {"attributes": [{"key": "gen_ai.prompt.0.content", "value": {"stringValue": "x"}},
                        {"key": "gen_ai.input.messages", "value": {"arrayValue": {"values": []}}}]},
    ]  # fmt: skip
    return spans


def places(value: Json, path: tuple = ()) -> list[tuple]:
    found = [path] if path else []
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            found += places(inner, (*path, key))
    return found


@EASY
@given(st.data())
def test_mutations(draw: st.DataObject) -> None:
    data = copy.deepcopy(draw.draw(st.sampled_from(corpus())))
    for _ in range(draw.draw(st.integers(1, 3))):
        if not (paths := places(data)):
            break
        *path, last = draw.draw(st.sampled_from(paths))
        node = data
        for key in path:
            node = node[key]
        match draw.draw(st.sampled_from(["delete", "wrap", "encode", "replace", "single"])):
            case "delete":
                del node[last]
            case "wrap":
                node[last] = [node[last]]
            case "encode":
                node[last] = json.dumps(node[last])
            case "single" if isinstance(node[last], list) and node[last]:
                node[last] = node[last][0]
            case _:
                node[last] = draw.draw(JSON)
    reads(data, draw.draw(st.sampled_from([None, None, None, *FORMATS])))


@EASY
@given(
    st.binary(max_size=40) | JSON.map(lambda data: json.dumps(data).encode()), st.sampled_from([b"", b"\n{", b"\r\n"])
)
def test_documents(raw: bytes, more: bytes) -> None:
    for item in read_document(raw + more + raw):
        assert (item.read is None) != (item.error is None)


# Messages by the published schema of OpenTelemetry's parts, every text of its own.
TEXT = st.uuids().map(str)
PART = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "content": TEXT}),
    st.fixed_dictionaries({"type": st.just("reasoning"), "content": TEXT}),
    st.fixed_dictionaries(
        {"type": st.just("tool_call"), "name": TEXT, "arguments": st.dictionaries(TEXT, TEXT, max_size=2)},
        optional={"id": TEXT},
    ),
    st.fixed_dictionaries(
        {"type": st.just("tool_call_response"), "response": TEXT | st.lists(TEXT)}, optional={"id": TEXT}
    ),
    st.fixed_dictionaries(
        {"type": st.just("server_tool_call"), "name": TEXT, "server_tool_call": st.fixed_dictionaries({"type": TEXT})}
    ),
    st.fixed_dictionaries({"type": st.just("uri"), "modality": TEXT, "uri": TEXT.map("https://{}".format)}),
    st.fixed_dictionaries({"type": st.just("file"), "modality": TEXT, "file_id": TEXT, "mime_type": TEXT | st.none()}),
    st.fixed_dictionaries({"type": TEXT, "anything": TEXT | st.lists(TEXT)}),
)


def message(*roles: str) -> st.SearchStrategy[dict]:
    return st.fixed_dictionaries(
        {"role": st.sampled_from(roles), "parts": st.lists(PART, max_size=4)}, optional={"name": TEXT}
    )


def texts(value: Json) -> list[str]:
    if isinstance(value, dict):
        return [text for key, inner in value.items() for text in ([key] if "-" in key else []) + texts(inner)]
    if isinstance(value, list | tuple):
        return [text for inner in value for text in texts(inner)]
    return [value] if isinstance(value, str) else []


@EASY
@given(st.lists(message("user", "system", "assistant", "tool"), min_size=1, max_size=4), message("assistant"))
@pytest.mark.parametrize("encode", [json.dumps, lambda value: value])
def test_messages_of_the_schema_lose_no_text(encode: Callable[[Json], Json], messages: list[dict], said: dict) -> None:
    data = {"gen_ai.input.messages": encode(messages), "gen_ai.output.messages": encode([said])}
    read = read_span(data)
    shown = "\n".join(texts(msgspec.to_builtins(read.span)))
    lost = [text for text in texts([messages, said]) if "-" in text and text not in shown]
    noted = " ".join(f"{note.where} {note.detail}" for note in read.notes)
    assert lost == [] or "after the last assistant" in noted or "name" in noted
