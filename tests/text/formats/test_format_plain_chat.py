"""The shortcut for plain spans reads what the readers of formats read, and nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.errors import SpanError, TooLargeError
from mainspring.text import formats
from mainspring.text.formats import MAX_DEPTH, read_span
from mainspring.text.formats.plain_chat import read_plain
from support.span_examples import EXAMPLES

ROLES = st.sampled_from(["system", "user", "assistant", "tool", "developer", "User", "", 1, None])
TEXTS = st.sampled_from(
    ["Hello.", "x", "7 of 9", "", " leading", '{"a": 1}', "[1]", '"quoted"', "é", "\ud800", "naïve \udc00", None, ["a"]]
)
MESSAGES = st.fixed_dictionaries({"role": ROLES, "content": TEXTS}, optional={"name": st.just("n")}) | st.sampled_from(
    ["text", None, {}, {"role": "user"}, {"role": "user", "type": "message"}, {"content": "a", "value": "b"}, [[]]]
)
SPANS = st.fixed_dictionaries(
    {"input": st.lists(MESSAGES, max_size=3) | MESSAGES, "output": MESSAGES | st.lists(MESSAGES, max_size=2)},
    optional={"tools": st.just([]), "model": st.just("m"), "span": st.just({}), "instructions": st.just("i")},
)


def slow(data: Any) -> Any:
    """What the readers say, or how they refuse."""
    try:
        return formats._read(data, None, MAX_DEPTH)
    except Exception as error:
        return type(error), str(error), getattr(error, "param", None)


def check(data: Any) -> None:
    found = read_plain(data)
    assert found is None or found == slow(data)


@given(SPANS)
def test_it_reads_as_the_readers_do(data: Any) -> None:
    check(data)


@given(st.lists(st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]),
                                       "content": st.text(st.characters(max_codepoint=126), min_size=1)}),
                min_size=1), st.text(min_size=1))  # fmt: skip
def test_it_reads_chats_as_the_readers_do(messages: list[Any], reply: str) -> None:
    check({"input": messages, "output": {"role": "assistant", "content": reply}})


SAID = {"role": "assistant", "content": "Hello."}
ASKED = {"role": "user", "content": "Hi"}
ONE_THING_MORE = {
    "no messages": {"input": []},
    "one message": {"input": ASKED},
    "a text": {"input": "Hi"},
    "a batch of one": {"input": [[ASKED]]},
    "a user's answer": {"output": ASKED},
    "two choices": {"output": [SAID, SAID]},
    "no answer": {"output": None},
    "tools": {"tools": [{"type": "function", "function": {"name": "f"}}]},
    "a model": {"model": "m"},
    "another span": {"span": {"input": [ASKED, SAID, ASKED], "output": SAID}},
    "attributes": {"attributes": {"gen_ai.prompt": "Hi"}},
    "an unknown field": {"level": 3},
    "a name": {"input": [ASKED | {"name": "bob"}]},
    "calls": {"input": [ASKED, SAID | {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]},
    "a reason to end": {"output": SAID | {"finish_reason": "stop"}},
    "a tool's message": {"input": [ASKED, {"role": "tool", "content": "Found"}]},
    "a developer": {"input": [ASKED | {"role": "developer"}]},
    "no content": {"input": [ASKED | {"content": None}]},
    "parts": {"input": [ASKED | {"content": [{"type": "text", "text": "Hi"}]}]},
    "JSON": {"input": [ASKED | {"content": '[{"type": "text", "text": "Hi"}]'}]},
    "an empty text": {"output": SAID | {"content": ""}},
    "an unknown role": {"input": [ASKED, {"role": "bo", "content": "Hi"}]},
    "no role": {"input": [{"content": "Hi", "value": "b"}]},
}


@pytest.mark.parametrize("more", ONE_THING_MORE.values(), ids=ONE_THING_MORE)
def test_whatever_is_one_thing_more_is_left_to_the_readers(more: dict[str, Any]) -> None:
    plain = {"input": [ASKED], "output": SAID}
    assert read_plain(plain) is not None
    assert read_plain(plain | more) is None


def test_a_format_or_a_depth_that_is_asked_for_is_the_readers() -> None:
    chat = {"input": [ASKED], "output": SAID}
    with pytest.raises(SpanError, match="langfuse"):
        read_span(chat, "langfuse")
    with pytest.raises(TooLargeError):
        read_span(chat, max_depth=1)


@pytest.mark.parametrize("data", EXAMPLES.values(), ids=EXAMPLES)
def test_no_example_of_a_format_is_read_otherwise(data: Any) -> None:
    check(data)


def test_a_plain_chat_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = {"input": [{"role": "user", "content": "Hi"}], "output": {"role": "assistant", "content": "Hello."}}
    expected = slow(chat)
    monkeypatch.setattr(formats, "_read", None)
    assert read_span(chat) == expected
    assert expected.format == "span-01"


@pytest.mark.parametrize("text", ["a \udc00", "é", "naïve", "7 \ud83d\ude00"])
@pytest.mark.parametrize("side", ["input", "output"])
def test_lone_surrogates_are_replaced_and_told_of(text: str, side: str) -> None:
    said = {"input": "Hi", "output": "Hello."} | {side: text}
    chat = {"input": [{"role": "user", "content": said["input"]}],
            "output": {"role": "assistant", "content": said["output"]}}  # fmt: skip
    check(chat)
    assert (read_plain(chat) is None) == ("\ud800" <= text[-1:] <= "\udfff")
