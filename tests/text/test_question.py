"""Behaviors are checked and faults named by path."""

from typing import Any

import pytest

from mainspring.errors import BehaviorError
from mainspring.text.question import Behavior, Choice, Question, YesNo, check_question, read_behaviors


def test_three_ways_to_write_a_behavior() -> None:
    found = read_behaviors([Behavior("a", "first one"), {"id": "b", "definition": "second"}, "The user is polite"])
    assert found == (
        Behavior("a", "first one"),
        Behavior("b", "second"),
        Behavior("The user is polite", "The user is polite"),
    )
    assert found[0].labels == ("present", "absent", "not_observable")


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([], "behaviors"),
        ("a string", "behaviors"),
        ({"id": "a", "definition": "abc"}, "behaviors"),
        (["fine", "  ab \n"], "behaviors[1].definition"),
        (["fine", "x" * 20_001], "behaviors[1].definition"),
        (["fine", {"id": "fine", "definition": "other"}], "behaviors[1].id"),
        ([{"id": "a"}], "behaviors[0].definition"),
        ([{"definition": "abc"}], "behaviors[0].id"),
        ([{"id": 3, "definition": "abc"}], "behaviors[0].id"),
        ([{"id": "a", "definition": "abc", "extra": 1}], "behaviors[0]"),
        ([3], "behaviors[0]"),
    ],
)
def test_faults_are_named(items: Any, param: str) -> None:
    with pytest.raises(BehaviorError) as caught:
        read_behaviors(items)
    assert caught.value.param == param


def test_field_names_are_quoted_in_part() -> None:
    with pytest.raises(BehaviorError) as caught:
        read_behaviors([{"id": "a", "definition": "abc", "x" * 10_000: 1}])
    assert len(str(caught.value)) < 200


def test_tens_of_thousands() -> None:
    assert len(read_behaviors([f"behavior {number}" for number in range(50_000)])) == 50_000


@pytest.mark.parametrize(
    ("question", "param"),
    [
        (Behavior("a", "ab"), "definition"),
        (YesNo("a", " "), "text"),
        (Choice("a", "Which?", ("one",)), "options"),
        (Choice("a", "Which?", tuple(map(str, range(256)))), "options"),
        (Choice("a", "Which?", ("one", " ")), "options[1]"),
        (Choice("a", "Which?", ("one", "x" * 30_000)), "options[1]"),
        (Choice("a", "Which?", ("one", "one")), "options"),
    ],
)
def test_questions_that_cannot_be_asked(question: Question, param: str) -> None:
    with pytest.raises(BehaviorError) as caught:
        check_question(question)
    assert caught.value.param == param
