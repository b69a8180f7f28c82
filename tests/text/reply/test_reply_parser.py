"""Reasoning, content and calls out of text, whole and in any pieces."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.text.reply.deltas import CallArguments, CallBegun, CallEnded, ContentText, ReasoningText
from mainspring.text.reply.parser import Parser

SCHEMAS = {
    "weather": {
        "properties": {
            "city": {"type": "string"}, "days": {"type": "integer"}, "where": {"type": "object"},
            "note": {"type": ["string", "null"]}, "exact": {"type": "boolean"},
            "either": {"anyOf": [{"type": "array"}]},
        }
    }
}  # fmt: skip
XML = (
    '<tool_call>\n<function=weather>\n<parameter=city>\nPar"is\n</parameter>\n<parameter=days>\n3\n</parameter>\n'
    '<parameter=where>\n{"x": [1]}\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n</function>\n</tool_call>'
)
JSON = (
    '<tool_call>\n{"name": "weather", "arguments": {"city": "a } \\" </tool_call>", "n": [1, {"b": null}]}}\n'
    "</tool_call>"
)


class Seen:
    """What a client has after all deltas."""

    def __init__(self, pieces: list[str], **options: Any) -> None:
        parser = Parser(**{"schemas": SCHEMAS, **options})
        deltas = [delta for piece in pieces for delta in parser.push(piece)] + parser.finish()
        self.reasoning = "".join(each.text for each in deltas if isinstance(each, ReasoningText))
        self.content = "".join(each.text for each in deltas if isinstance(each, ContentText))
        self.names = [each.name for each in deltas if isinstance(each, CallBegun)]
        self.arguments = [""] * len(self.names)
        for each in deltas:
            if isinstance(each, CallArguments):
                self.arguments[each.index] += each.text
        self.ended = [each.index for each in deltas if isinstance(each, CallEnded)]
        self.deltas = deltas

    def facts(self) -> tuple[Any, ...]:
        return self.reasoning, self.content, self.names, self.arguments, self.ended


WHOLE = [
    "plain text\n",
    "<think>\nso\n</think>\n\nanswer",
    f"<think>hm</think>\n\nI look.\n\n{XML}",
    f"{JSON}\n{XML}",
    f"{XML}\nafterwards",
    "a <tool_call>\nnot a call\n</tool_call> b",
    "a < b <think> c </think> d",
    '<tool_call>{"arguments": {"a": 1}, "name": "late"}</tool_call>',
    '<tool_call>{"name": "bare"}</tool_call>',
    '<tool_call>{"name": "text", "arguments": "{\\"a\\": 1}"}</tool_call>',
    '<tool_call>{"name": 5}</tool_call>',
    "<tool_call><function=weather>\n</function>\n</tool_call>",
    "<tool_call><function=weather><parameter=city>\n\n two\nlines \n\n</parameter></function></tool_call>",
    "<tool_call><function=weather><parameter=city>\nsma",
    "<tool_call><func",
    "x <tool_ca",
]


@pytest.mark.parametrize("text", WHOLE)
def test_pieces_do_not_matter(text: str) -> None:
    whole = Seen([text]).facts()
    assert Seen(list(text)).facts() == whole
    for at in range(1, len(text)):
        assert Seen([text[:at], text[at:]]).facts() == whole


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(["<think>", "</think>", "<tool_call>", "</tool_call>", "{", '"name"', ":", '"f"', ",", "}",
                         '"arguments"', "<function=f>", "<parameter=p>", "</parameter>", "</function>", "\n", "x",
                         " "]),
        max_size=16,
    ),
    st.booleans(),
)  # fmt: skip
def test_any_text_at_all_in_any_pieces(parts: list[str], inside: bool) -> None:
    text = "".join(parts)
    assert Seen(list(text), inside=inside).facts() == Seen([text], inside=inside).facts()


def test_functions_with_parameters_by_their_schema() -> None:
    seen = Seen([XML])
    assert (seen.names, seen.content, seen.ended) == (["weather"], "", [0])
    assert json.loads(seen.arguments[0]) == {"city": 'Par"is', "days": 3, "where": {"x": [1]}, "exact": True}


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("city", "3", "3"), ("days", "three", "three"), ("days", "3.5", "3.5"), ("note", "null", None),
        ("note", "5", "5"), ("either", "[1]", [1]), ("exact", "false", False), ("unknown", "{}", "{}"),
        ("days", "true", "true"), ("where", '{"a": NaN}', '{"a": NaN}'),
    ],
)  # fmt: skip
def test_a_value_that_its_schema_does_not_allow_is_text(key: str, text: str, value: Any) -> None:
    call = f"<tool_call><function=weather><parameter={key}>\n{text}\n</parameter></function></tool_call>"
    assert json.loads(Seen([call]).arguments[0]) == {key: value}


def test_json_calls_stream_their_arguments_as_they_stand() -> None:
    seen = Seen(list(JSON))
    assert seen.names == ["weather"]
    assert json.loads(seen.arguments[0]) == {"city": 'a } " </tool_call>', "n": [1, {"b": None}]}
    assert sum(isinstance(each, CallArguments) for each in seen.deltas) > 20


def test_string_values_grow_and_others_come_whole() -> None:
    parser = Parser(schemas=SCHEMAS)
    start = "<tool_call><function=weather><parameter=city>\nPa"
    assert CallArguments(0, '{"city": "Pa') in parser.push(start)
    assert parser.push("ris\n") == [CallArguments(0, "ris")]
    assert parser.push("</parameter>") == [CallArguments(0, '"')]
    assert parser.push("<parameter=days>4") == [CallArguments(0, ', "days": ')]
    assert parser.push("2</parameter>") == [CallArguments(0, "42")]


def test_reasoning_that_the_prompt_opened_and_reasoning_that_never_ends() -> None:
    assert Seen(["so\n</think>\n\nyes"], inside=True).facts()[:2] == ("so", "yes")
    assert Seen(["so it is\n"], inside=True).facts()[:2] == ("so it is", "")
    assert Seen(["\n<think>\nso\n</think>\n\nyes"], inside=True).facts()[:2] == ("so", "yes")
    assert Seen(["so <think> it is"], inside=True).facts()[:2] == ("so <think> it is", "")
    assert Seen(["\n<think>a</think>b"], reasoning=False).facts()[:2] == ("", "\n<think>a</think>b")


def test_what_is_no_call_is_given_back_as_text() -> None:
    for text in (
        "a <tool_call>\nno\n</tool_call> b",
        "a <tool_call>{]</tool_call>",
        '<tool_call>\n{"x": 1}',
        "<tool_call>",
    ):
        seen = Seen(list(text))
        assert (seen.content, seen.names) == (text, [])


def test_text_around_calls_loses_the_white_space_of_the_format_alone() -> None:
    seen = Seen([f"Let me  look.\n\n{XML}\n{JSON}\n\nDone. \n"])
    assert (seen.content, seen.names) == ("Let me  look.Done. \n", ["weather", "weather"])
    assert seen.ended == [0, 1]


def test_without_tools_a_call_is_text() -> None:
    assert Seen([XML], schemas=None).facts()[:3] == ("", XML, [])


def test_a_call_that_the_prompt_began() -> None:
    seen = Seen(
        ["<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>"], given="<tool_call>\n<function=weather>\n"
    )
    assert (seen.names, json.loads(seen.arguments[0])) == (["weather"], {"city": "Rome"})


def test_a_call_that_is_cut_keeps_what_it_has_and_never_ends() -> None:
    seen = Seen(["<tool_call><function=weather><parameter=city>\nsma"])
    assert (seen.names, seen.arguments, seen.ended, seen.content) == (["weather"], ['{"city": "sma'], [], "")


def test_depth_costs_no_stack() -> None:
    deep = "[" * 100_000
    seen = Seen([f'<tool_call>{{"name": "f", "arguments": {{"a": {deep}'])
    assert seen.arguments == ['{"a": ' + deep]
