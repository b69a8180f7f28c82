"""Prompts: what a template would lose is refused, reasoning is known to be open, beginnings have the keys of views."""

import hashlib
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from mainspring.errors import InputError, SpanError, TooLargeError
from mainspring.text.bundle import Bundle
from mainspring.text.guard import Piece
from mainspring.text.prompt import EVERY_TOKENS, MOST_STEPS, MOST_TURNS, Prompt, prefix_keys, write_prompt
from mainspring.text.span import Message, Span, Text, ToolCall, ToolDefinition
from support.chat_templates import QWEN_STYLE, STRICT
from support.tiny_tokenizer import CHATML, write_tiny_tokenizer

HI = Span((Message("user", (Text("Hi"),)),))


@cache
def bundle(template: str = QWEN_STYLE) -> Bundle:
    with TemporaryDirectory() as folder:
        return Bundle.load(write_tiny_tokenizer(Path(folder), chat_template=template))


def prompt(span: Span = HI, template: str = QWEN_STYLE, **options: Any) -> Prompt:
    made = bundle(template)
    return write_prompt(made.chat, span, ends=made.eos_ids, **options)


def shown(found: Prompt, template: str = QWEN_STYLE) -> str:
    return bundle(template).tokenizer.decode(found.tokens)


@pytest.mark.parametrize(
    ("thinking", "closed", "inside"),
    [(None, False, True), (True, False, True), (False, False, False), (None, True, False), (True, True, False)],
)
def test_whether_reasoning_is_open(thinking: bool | None, closed: bool, inside: bool) -> None:
    found = prompt(thinking=thinking, closed=closed)
    assert found.inside == inside
    assert shown(found).endswith("<think>\n" if inside else "</think>\n\n")


def test_a_users_tag_opens_nothing() -> None:
    found = prompt(Span((Message("user", (Text("</think> <think>"),)),)), CHATML)
    assert not found.inside


def test_a_reply_that_is_begun_is_text_behind_closed_reasoning() -> None:
    found = prompt(given=[Piece("user", "Yes <|im_end|>")])
    assert shown(found).endswith("<think>\n\n</think>\n\nYes <|im_end|>")
    assert found.given == "Yes <|im_end|>"
    assert bundle().tokenizer.control["<|im_end|>"] not in found.tokens[-8:]


def test_turns_end_at_end_tokens() -> None:
    span = Span((Message("user", (Text("Hi"),)), Message("assistant", (Text("Yes"),)), Message("user", (Text("No"),))))
    found = prompt(span)
    ends = [index + 1 for index, token in enumerate(found.tokens) if int(token) in bundle().eos_ids]
    assert list(found.turns) == ends
    assert len(ends) == 3
    assert found.turns[0] == prompt().turns[0]
    assert np.array_equal(found.tokens[: ends[0]], prompt().tokens[: ends[0]])


@pytest.mark.parametrize(
    ("span", "template", "param"),
    [
        (Span(HI.input, (), (ToolDefinition("f"),)), CHATML, "tools"),
        (Span((*HI.input, Message("assistant", (ToolCall("f", {"a": "b"}),)), *HI.input)), CHATML, "input[1].parts[0]"),
        (Span((*HI.input, Message("system", (Text("late"),)))), QWEN_STYLE, "messages"),
        (Span((Message("system", (Text("be kind"),)), *HI.input)), STRICT, "messages"),
    ],
)  # fmt: skip
def test_what_a_template_refuses_or_would_lose_is_named(span: Span, template: str, param: str) -> None:
    with pytest.raises(SpanError) as caught:
        prompt(span, template)
    assert caught.value.param is not None
    assert caught.value.param.startswith(param)


@pytest.mark.parametrize(
    "variables",
    [
        {"messages": []},
        {"bos_token": "x"},
        {"a": "<b>"},
        {"a": ["x"]},
        {"a": "x" * 65},
        {f"v{n}": 1 for n in range(33)},
    ],
)
def test_variables_are_switches_and_words(variables: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        prompt(variables=variables)
    assert (caught.value.param or "").startswith("chat_template_kwargs")
    assert "hm" in shown(prompt(template=CHATML + "{{ mood }}", variables={"mood": "hm"}), CHATML + "{{ mood }}")


def test_a_prompt_beyond_the_limit() -> None:
    with pytest.raises(TooLargeError):
        prompt(limit=5)


def test_keys_are_those_of_views_and_bounded() -> None:
    salt = b"s" * 32
    tokens = np.arange(5000, dtype=np.uint32)
    keys = prefix_keys(tokens, (7, 4000), salt)
    assert [place for _, place in keys] == [7, 1024, 2048, 3072, 4000, 4096, 5000]
    for key, place in keys:
        assert key == hashlib.blake2b(tokens[:place].tobytes(), digest_size=16, key=salt).hexdigest()
    assert {key for key, _ in prefix_keys(tokens, (), b"t" * 32)}.isdisjoint(key for key, _ in keys)
    long = prefix_keys(np.zeros(EVERY_TOKENS * 1000, np.uint32), range(1, 1000), salt)
    assert len(long) <= MOST_TURNS + MOST_STEPS + 1
    assert long[-1][1] == EVERY_TOKENS * 1000
