from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mainspring.errors import SpanError
from mainspring.text.formats import _messages, read_span
from mainspring.text.formats._reading import Reading
from mainspring.text.span import Message, Text, ToolCall, ToolResult

USER = {"role": "user", "content": "hi"}
SAID = {"role": "assistant", "content": "hello"}


@pytest.mark.parametrize("data", [{"span": {"input": [USER], "output": SAID}}, {"input": [USER], "output": SAID}])
@pytest.mark.parametrize("name", [None, "span-01"])
def test_plain(data: dict, name: str | None) -> None:
    read = read_span(data, name)
    assert read.format == "span-01"
    assert read.span.input == (Message("user", (Text("hi"),)),)
    assert read.span.output == (Message("assistant", (Text("hello"),)),)
    assert read.notes == ()


def test_output_must_be_the_assistants() -> None:
    with pytest.raises(SpanError) as caught:
        read_span({"span": {"input": [USER], "output": USER}})
    assert caught.value.message == "span output must be an assistant message"
    assert caught.value.param == "span.output.role"


@pytest.mark.parametrize(
    ("source", "role"),
    [("developer", "system"), ("human", "user"), ("ai", "assistant"), ("bot", "assistant"), ("model", "assistant"),
     ("function", "tool"), ("HumanMessage", "user"), ("AIMessageChunk", "assistant")],
)  # fmt: skip
def test_roles(source: str, role: str) -> None:
    assert read_span({"input": [{"role": source, "content": "x"}], "output": "y"}).span.input[0].role == role


def test_unknown_role_is_named_with_its_path() -> None:
    with pytest.raises(SpanError, match="narrator") as caught:
        read_span({"span": {"input": [USER, {"role": "narrator", "content": "secret"}], "output": SAID}})
    assert caught.value.param == "span.input[1].role"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("message", [{"content": "x"}, {"role": None, "content": "x"}, {"role": 3, "content": "x"}])
def test_missing_role(message: dict) -> None:
    with pytest.raises(SpanError) as caught:
        read_span({"input": [message], "output": SAID})
    assert caught.value.param == "input[0].role"


@pytest.mark.parametrize("given", [[], None, ""])
def test_input_without_message(given: object) -> None:
    with pytest.raises(SpanError, match="no message"):
        read_span({"span": {"input": given, "output": SAID}}, "span-01")


@pytest.mark.parametrize("output", [None, []])
def test_no_output(output: object) -> None:
    assert read_span({"input": [USER], "output": output}).span.output == ()


@pytest.mark.parametrize("content", ["", None, []])
def test_empty_output_is_one_empty_choice(content: object) -> None:
    out = {"role": "assistant", "content": content}
    assert read_span({"input": [USER], "output": out}).span.output == (Message("assistant", ()),)


def test_strings_and_single_objects_where_lists_belong() -> None:
    assert read_span({"input": "hi", "output": "hello"}).span == read_span({"input": USER, "output": [SAID]}).span


def test_several_choices() -> None:
    assert len(read_span({"input": "hi", "output": [SAID, SAID]}).span.output) == 2


@pytest.mark.parametrize(("content", "text"), [(3, "3"), (True, "true"), (1.5, "1.5"), ([1, "a"], "1\na")])
def test_scalars_as_content(content: object, text: str) -> None:
    assert read_span({"input": [{"role": "user", "content": content}], "output": SAID}).span.input[0].text == text


def test_lone_surrogates_are_replaced_and_noted() -> None:
    read = read_span({"input": [{"role": "user", "content": "a\ud83db"}], "output": SAID})
    assert read.span.input[0].text == "a\ufffdb"
    assert [(note.kind, note.where) for note in read.notes] == [("replaced", "input[0].content")]


def test_split_pairs_are_joined_and_the_rest_stays() -> None:
    text = "\x00 \u202e שלום 😀 \ufffd\u2028"
    data = {"input": [{"role": "user", "content": text + "\ud83d\ude00"}], "output": SAID}
    read = read_span(data)
    assert read.span.input[0].text == text + "😀"
    assert read.notes == ()


def test_numbers_that_are_not_finite() -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": {"x": float("inf"), "y": float("nan")}}}
    read = read_span({"input": "hi", "output": {"role": "assistant", "tool_calls": [call]}})
    assert read.span.output[0].parts == (ToolCall("f", {"x": "Infinity", "y": "NaN"}, "1"),)
    assert {note.kind for note in read.notes} == {"replaced"}


def test_the_rest_of_a_request_is_noted_once() -> None:
    read = read_span({"model": "m", "behaviors": [{"id": "a"}], "span": {"input": "hi", "output": SAID}})
    assert [(note.where, note.detail) for note in read.notes] == [("", "model, behaviors")]


def test_notes_of_many_messages_are_one() -> None:
    messages = [{"role": "user", "content": "x", "id": str(i)} for i in range(50)]
    read = read_span({"input": messages, "output": SAID})
    assert [(note.where, note.detail) for note in read.notes] == [("input[*]", "id (50 places)")]


def test_results_inside_a_users_message_stand_apart() -> None:
    content = [{"type": "tool_result", "tool_use_id": "1", "content": "ok"}, {"type": "text", "text": "go on"}]
    span = read_span({"input": [{"role": "user", "content": content}], "output": SAID}).span
    assert span.input == (Message("tool", (ToolResult("ok", "1"),)), Message("user", (Text("go on"),)))


def test_calls_outside_the_assistant_become_text() -> None:
    content = [{"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}, {"type": "thinking", "thinking": "hm"}]
    read = read_span({"input": [{"role": "user", "content": content}], "output": SAID})
    assert '"a":1' in read.span.input[0].text
    assert "hm" in read.span.input[0].text
    assert [note.kind for note in read.notes] == ["moved", "moved"]


SAYINGS = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "assistant", "tool", "AI", "developer", "nobody", ""])},
    optional={
        "content": st.one_of(
            st.text(max_size=12),
            st.sampled_from(['{"type":"text","text":"x"}', '["a"]', '"q"', "1", "", " {}", "[1", "\ud800"]),
            st.lists(st.sampled_from(["a", {"type": "text", "text": "b"}]), max_size=2), st.none(), st.just(7),
        ),
        "name": st.just("n"), "tool_calls": st.just([]), "text": st.just("t"), "value": st.just("v"),
    },
)  # fmt: skip


@given(SAYINGS)
@example({"role": "user", "content": "plain"})
@example({"role": "assistant", "content": '[{"type":"text","text":"decoded"}]'})
def test_the_short_way_reads_what_the_long_way_reads(value: dict[str, Any]) -> None:
    def read(way: Any) -> Any:
        r = Reading("span-01")
        try:
            return way(r, value), r.done(needs_input=False).notes
        except SpanError as error:
            return error.message, error.param

    assert read(lambda r, v: _messages.read_message(r, v, "input[0]")) == read(
        lambda r, v: _messages._read_object(r, v, "input[0]", None)
    )


def test_the_short_way_is_taken() -> None:
    assert _messages._plainly_said(USER) == [Message("user", (Text("hi"),))]
    assert _messages._plainly_said({"role": "user", "content": '{"a": 1}'}) is None
