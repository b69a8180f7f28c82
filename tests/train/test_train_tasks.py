"""Tasks with a tool: many, labelled by what the call has and how it ended."""

import random
import re

import pytest

from mainspring.text.span import Span, Text, ToolCall
from mainspring.train.content import structural, tasks
from mainspring.train.content.examples import ABSENT, PRESENT
from mainspring.train.content.facts import Facts
from mainspring.train.content.patterns import reports_error
from mainspring.train.content.structural import constructed_examples, pools_of
from mainspring.train.sources import Conversation, exchange
from mainspring.train.splits import TRAIN, text_split

MADE = [tasks.task(random.Random(seed)) for seed in range(3000)]


def call_of(span: Span) -> ToolCall:
    [call] = [part for turn in (*span.input, *span.output) for part in turn.parts if isinstance(part, ToolCall)]
    return call


def said_by_users(span: Span) -> str:
    return " ".join(part.text for m in span.input if m.role == "user" for part in m.parts if isinstance(part, Text))


def fits(span: Span, key: str, value: str) -> bool:
    """Told in these words, a number of people perhaps as a word."""
    said = said_by_users(span)
    words = (value, dict(zip(map(str, range(2, 13)), tasks._COUNTS, strict=True)).get(value, value))
    if key == "people":
        return any(text.format(v=word) in said for text in tasks._COUNTED for word in words)
    return value in said


def test_an_argument_is_wrong_where_nobody_told_its_value() -> None:
    seen = {True: 0, False: 0}
    for span, told in MADE:
        if (wrong := told.get("wrong_argument")) is None:
            assert told["wrong_tool"]
            continue
        arguments = call_of(span).arguments
        assert isinstance(arguments, dict)
        misfits = [key for key, value in arguments.items() if not fits(span, key, value)]
        assert len(misfits) == wrong, (span, told)
        seen[wrong] += 1
    assert min(seen.values()) > 1100


def test_numbers_come_as_words_and_digits_and_arguments_out_of_nowhere() -> None:
    said = [said_by_users(span) for span, _ in MADE]
    for shown in ([str(n) for n in range(2, 13)], tasks._COUNTS):
        assert sum(any(f"It is for {v} people." in text for v in shown) for text in said) > 15
    calls = [call_of(span).arguments for span, told in MADE if told.get("wrong_argument")]
    told = {tasks._key(sort): [t.partition("{v}")[0] for t in sort.told] for sort in tasks.SORTS}
    spoken = [text for text, (_, what) in zip(said, MADE, strict=True) if what.get("wrong_argument")]
    nowhere = [
        key
        for arguments, text in zip(calls, spoken, strict=True)
        for key in (arguments if isinstance(arguments, dict) else ())
        if key != "people" and not any(start in text for start in told[key])
    ]
    assert len(nowhere) > 100


def test_the_tool_is_the_one_for_the_request_or_no_near_one() -> None:
    wrong = 0
    for span, told in MADE:
        [asked] = [tool for tool, request, _ in tasks.TASKS if request in said_by_users(span)]
        called = call_of(span).name
        assert told["wrong_tool"] == (called != asked)
        assert {asked, called} not in tasks._LIKE
        wrong += called != asked
        offered = [tool.name for tool in span.tools]
        assert not offered or called in offered
        assert len(set(offered)) == len(offered)
    assert 250 < wrong < 500


def test_a_failure_is_passed_over_or_owned_up_to() -> None:
    seen: set[tuple[bool, bool]] = set()
    for span, told in MADE:
        results = Facts(span).results
        if not results:
            assert "ignores_error" not in told
            continue
        failed = reports_error(results[0])
        claims = any(done in span.output[0].text for _, _, done in tasks.TASKS)
        assert told["ignores_error"] is (failed and claims)
        fine = not failed and not told["wrong_tool"] and not told["wrong_argument"]
        assert told.get("contradicts_result") is (True if failed and claims else False if fine else None)
        assert failed or claims
        seen.add((failed, claims))
    assert seen == {(False, True), (True, True), (True, False)}


def test_they_are_many_and_a_reply_takes_up_what_was_told() -> None:
    assert len({repr(span) for span, _ in MADE}) > 2950
    assert not [span for span, _ in MADE if "{v}" in repr(span)]
    shown = [re.escape(t).replace(r"\{v\}", "(.+)") for sort in tasks.SORTS for t in sort.repeated]
    taken_up = {True: 0, False: 0, None: 0}
    for span, told in MADE:
        reply = Facts(span).reply
        for _, _, done in tasks.TASKS:
            rest = reply.removeprefix(done).strip()
            if rest and rest != reply and not rest.startswith("It is for "):
                found = {m[1].lower() for pattern in shown if (m := re.fullmatch(pattern, rest))}
                assert any(value in said_by_users(span).lower() for value in found), (span, rest)
                taken_up[told.get("wrong_argument")] += 1
    assert min(taken_up[True], taken_up[False]) > 200  # no sign of either
    assert abs(taken_up[True] - taken_up[False]) < 100


@pytest.mark.parametrize("key", ["wrong_argument", "wrong_tool", "ignores_error"])
def test_they_are_among_the_constructed_ones(key: str) -> None:
    talk = [
        Conversation(exchange(f"Well, {i}?", f"Number {i} is one. It has parts."), f"t/{i}", "test") for i in range(9)
    ]
    made = [e for e in constructed_examples(pools_of(talk)) if e.text_id.startswith("task/")]
    assert len({e.text_id for e in made}) == len(made) == structural.TASKS
    assert len({repr(e.span) for e in made}) > 0.95 * len(made)
    assert {text_split(e.text_id) for e in made} == {TRAIN}
    assert {PRESENT, ABSENT} <= {r.label for e in made for r in e.rows if r.behavior.key == key}


def test_what_is_told_is_wanted_and_errors_blame_no_value() -> None:
    for sort in tasks.SORTS:
        assert [text for text in sort.told if not tasks._ASIDE.search(text)], sort.key
    said = " ".join(said_by_users(span) for span, _ in MADE)
    assert not tasks._ASIDE.search(said)
    assert "allergic to" in said
    assert not [span for span, _ in MADE if "ingredient" in repr(call_of(span).arguments)]
    assert not [r for span, _ in MADE for r in Facts(span).results if tasks._BLAMES.search(r)]


def test_turns_and_tools_come_in_every_form() -> None:
    asked = [len([m for m in span.input if m.role == "user"]) for span, _ in MADE]
    assert min(asked.count(1), asked.count(2)) > 600
    assert 500 < sum(span.input[0].role == "system" for span, _ in MADE) < 1000
    offered = [(span.tools, call_of(span)) for span, _ in MADE if span.tools]
    assert 1200 < len(offered) < 1800
    assert {len(tools) for tools, _ in offered} == {1, 2, 3}
    assert {tools[0].name == call.name for tools, call in offered} == {True, False}
    for tools, call in offered:
        [own] = [tool.parameters for tool in tools if tool.name == call.name]
        assert isinstance(own, dict)
        assert isinstance(call.arguments, dict)
        assert set(own["properties"]) == set(call.arguments)
