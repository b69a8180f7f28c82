"""Wordings: unique, of known behaviors, none of what is held out; rules keep to what their wordings say."""

import re
import tomllib
from collections import Counter
from importlib.resources import files
from itertools import chain
from pathlib import Path

import pytest

from mainspring.train import content
from mainspring.train.content import calls, casing, changed, doubles, patterns, refusals
from mainspring.train.content import kinds as k
from mainspring.train.content import persona as p
from mainspring.train.content.constraints import CONSTRAINTS, Wish
from mainspring.train.content.examples import ABSENT, rule_examples
from mainspring.train.content.facts import Facts
from mainspring.train.content.insertions import behavior_of
from mainspring.train.content.persona_examples import (
    HELD_FAMILIES,
    TRAINED,
    persona_examples,
    trait_behavior,
    user_behavior,
)
from mainspring.train.content.repeats import BEHAVIORS as REPEATS
from mainspring.train.content.rules import RULES, WORD, argument_behavior
from mainspring.train.content.structural import CALIBRATION_EDITS, EDITS, MARKS, TEST_EDITS
from mainspring.train.content.wordings import more, tables
from mainspring.train.sources import Conversation, Statement, exchange, statements

SOURCES = Path(__file__).parents[2] / "data" / "sources"
HELD_EDITS = {*TEST_EDITS, *CALIBRATION_EDITS}
SELF_WORDED = {
    *changed.BY_KEY,
    *REPEATS,
    *doubles.BEHAVIORS,
    *casing.BEHAVIORS,
    *calls.BEHAVIORS,
    *refusals.BEHAVIORS,
}  # beside their code
WORDED_KINDS = {
    entry["key"]
    for name in ("manner", "claims", "acts", "signs", "speech", "rhetoric")
    for entry in tomllib.loads((files(content) / f"kinds_{name}.toml").read_text("utf-8"))["kind"]
}  # these have all their clauses beside their sentences
KNOWN = {
    "rules": {rule.behavior.key for rule in RULES},
    "edits": {*EDITS, *MARKS} - HELD_EDITS - SELF_WORDED,
    "kinds": {kind.key for kind in k.TRAIN_KINDS if kind.key not in WORDED_KINDS},
    "phrases": set(TRAINED),
    "parametrised": {"reply_word", "user_word", "tool_named", "tool_argument"},
    "frames": {"train"},
}
SPOKEN = [*(rule.behavior for rule in RULES), *EDITS.values(), *MARKS.values(), *map(behavior_of, k.KINDS)]
HOLDS = {rule.behavior.key: rule.holds for rule in RULES}


def twice(texts: list[str]) -> list[str]:
    return [text for text, count in Counter(texts).items() if count > 1]


def test_wordings_are_there_for_all_that_is_trained_and_for_nothing_held_out() -> None:
    assert {name: set(table) for name, table in tables().items()} == KNOWN


def test_every_wording_is_unique_and_none_is_a_test_wording() -> None:
    trained = [clause for behavior in SPOKEN for clause in behavior.train]
    assert not twice(trained)
    assert not set(trained) & {clause for behavior in SPOKEN for clause in behavior.test}
    phrases = [*chain.from_iterable(p.PHRASES.values()), *chain.from_iterable(tables()["phrases"].values())]
    assert not twice(phrases)
    frames = [*p.FRAMES, *p.TEST_FRAMES, *tables()["frames"]["train"]]
    assert not twice(frames)
    assert not twice([*p.USER_FRAMES, *p.MORE_USER_FRAMES, *p.USER_TEST_FRAMES])


def test_a_trained_behavior_has_many_wordings_and_a_held_out_one_few() -> None:
    held = {*HELD_EDITS, *k.TEST_KINDS, *k.CALIBRATION_KINDS}
    for behavior in SPOKEN:
        assert len(behavior.train) in (range(2, 6) if behavior.key in held else range(8, 30)), behavior.key


def test_held_out_traits_have_their_own_phrases_and_the_old_frames_alone() -> None:
    for trait in (t for t, family in p.FAMILY_OF.items() if family in HELD_FAMILIES):
        for behavior, frames in ((trait_behavior(trait), p.FRAMES), (user_behavior(trait), p.USER_FRAMES)):
            assert len(behavior.train) == len(p.PHRASES[trait]) * len(frames)
    for trait in TRAINED:
        for behavior in (trait_behavior(trait), user_behavior(trait)):
            assert not set(behavior.train) & set(behavior.test)


def test_slots_are_filled() -> None:
    clauses = argument_behavior("find", "city", "{Rome}").train
    assert len(clauses) == 15
    assert all("{Rome}" in clause for clause in clauses)
    for key in ("reply_word", "user_word", "tool_named"):
        assert not any(re.search(r"[{}]", text) for text in more("parametrised", key, word="river", name="find"))


def test_a_denied_argument_names_its_own_value_and_keeps_the_tool() -> None:
    from mainspring.text.span import Message, Span, ToolCall

    def call(number: int, value: str) -> Conversation:
        turn = Message("assistant", (ToolCall("in_rome", {"city": value}),))
        return Conversation(Span((Message("user", ()),), (turn,)), f"t/{number}", "test")

    values = ["rome", "lima"] * 20
    found = [
        row.behavior
        for example in rule_examples([call(i, v) for i, v in enumerate(values)])
        for row in example.rows
        if row.behavior.base == "tool_argument" and row.label == ABSENT
    ]
    assert {b.key for b in found} == {"tool_argument:in_rome:city:rome", "tool_argument:in_rome:city:lima"}
    for behavior in found:
        assert behavior == argument_behavior(*behavior.key.split(":")[1:])


@pytest.mark.parametrize(
    ("key", "holds", "not_so"),
    [
        ("reply_refuses", ["I can’t do that", "We are unable to", "I must decline"], ["I can't wait to see it"]),
        ("reply_first_person", ["My name is Bo", "Me too", "I’m here"], ["time", "some"]),
        ("reply_sorry", ["accept our apology", "I apologized", "we regret that"], ["you will not regret it"]),
        (
            "reply_code",
            ["def f(x):\n", "class Foo:\n", "import numpy as np\n", "function f(x) {", "public double area(int a) {"],
            ["public transport (by bus) is", "class action lawsuits", "import duties are high", "print media"],
        ),
        (
            "reply_math",
            ["2+2", "x = 5", "3 * 4 = 12", "6*7", r"\frac{1}{2}", "$x^2$", "(2+3) = 5"],
            ["24/7", "def f(n):\n    x = 5", "int x = 5;", "1/2/2020", "$5 to $10", "http://a.b/1?x=5", "?id=5&b=6"],
        ),
        ("reply_ai", ["As an AI, I", "I'm a language model"], ["as an aid", "as an aim"]),
        ("reply_bold", ["**so** it", "# Title", "## A"], ["2**3 and 4**2", "```\n# note\n```", "import os\n# note"]),
        ("reply_year", ["in 1994", "2019-2020"], ["1500 calories", "$1999", "1,500", "1999.5"]),
        ("reply_hedges", ["it may rain", "perhaps"], ["in May"]),
    ],
)  # fmt: skip
def test_rules_and_their_look_alikes(key: str, holds: list[str], not_so: list[str]) -> None:
    for reply in holds:
        assert HOLDS[key](Facts(exchange("q", reply))), reply
    for reply in not_so:
        assert not HOLDS[key](Facts(exchange("q", reply))), reply


def test_other_patterns() -> None:
    assert not patterns.reports_error('{"error": null, "failed": 0}')
    assert patterns.reports_error('{"error": "no such id"}')
    for text, thanks, complains in [
        ("No, thank you", 0, 0),
        ("no thanks", 0, 0),
        ("Thanks!", 1, 0),
        ("no, wrong", 0, 1),
    ]:
        assert bool(re.search(patterns.THANKS, text, re.IGNORECASE)) == bool(thanks)
        assert bool(re.search(patterns.COMPLAINS, text, re.IGNORECASE)) == bool(complains)
    for text in ("Don't use emoji.", "You shouldn’t guess.", "Only talk about orders."):
        assert re.search(patterns.PROHIBITS, text, re.IGNORECASE)
    assert WORD.findall("internationalisation isn't a words") == ["words"]


@pytest.mark.parametrize(("reply", "broken"), [("1. one\n2. two", False), ("1. one", False), ("1. one\nand two", True)])
def test_one_number_makes_no_list(reply: str, broken: bool) -> None:
    [chosen] = [c for c in CONSTRAINTS if c.behavior.key == "broke_numbering"]
    assert chosen.broken(reply, Wish("a", "b", 5)) == broken


def test_mislabelled_traits_are_left_out_and_reversed_ones_turned_round() -> None:
    assert not list(persona_examples([Statement(p.LEFT_OUT[0], "I like it.", True, 1.0)], []))
    trait = "believes-AIs-are-not-an-existential-threat-to-humanity"
    matching = [s.text for s in statements(SOURCES) if s.trait == trait and s.matches]
    assert any("AI is perfectly safe" in text for text in matching)


def test_families_alike_in_meaning_deny_nothing_of_each_other() -> None:
    said = [Statement("desire-to-create-allies", f"I want allies {i}.", True, 1.0) for i in range(300)]
    others = {
        p.FAMILY_OF[row.behavior.key.partition(":")[2]]
        for example in persona_examples(said, [Conversation(exchange("a", "b"), "t", "test")])
        for row in example.rows
        if row.group == "persona_other"
    }
    assert len(others) > 5
    assert not others & {"cooperation", "influence"}
