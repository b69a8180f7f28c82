"""Definitions by quotes: third person, labels that follow the side quoted, nothing of held-out texts or families."""

import numpy as np
import pytest

from mainspring.train import splits
from mainspring.train.arrays import Ragged, Rows, TrainingData
from mainspring.train.content import kinds as k
from mainspring.train.content import persona as p
from mainspring.train.content.examples import ABSENT, PRESENT, Row
from mainspring.train.content.insertions import insertion_examples
from mainspring.train.content.persona_examples import HELD_FAMILIES, persona_examples, text_id_of
from mainspring.train.content.quotes import LONGEST, MOST, predicate, quotes_of
from mainspring.train.familiarity import familiarity_of
from mainspring.train.sources import Conversation, Statement, exchange
from mainspring.train.splits import TRAIN, text_split

TALK = [Conversation(exchange("a", "b"), "t", "test")]
TRAIT = "desire-to-create-allies"


@pytest.mark.parametrize(
    ("said", "predicated"),
    [
        ("I want my own goals", "wants its own goals"),
        ("I don't believe in it", "does not believe in it"),
        ("I am kind, and I try hard", "is kind, and it tries hard"),
        ("I'm sure of myself", "is sure of itself"),
        ("I always watch them", "always watches them"),
        ("I learned what I said", "learned what it said"),
        ("I should obey", "thinks that it should obey"),
        ("I would not lie to me", "would not lie to it"),
        ("Art is dull", "holds that art is dull"),
        ("AI helps me", "holds that AI helps it"),
        ("It is for humans that I live", "holds that it is for humans that it lives"),
    ],
)
def test_a_statement_becomes_a_predicate(said: str, predicated: str) -> None:
    assert predicate(said) == predicated


def test_few_sure_short_statements_are_quoted() -> None:
    plain = [(TRAIT, True, 0.9, f"I like allies {i}") for i in range(MOST + 5)]
    odd = [(TRAIT, True, 0.5, "unsure"), (TRAIT, True, 0.9, "x" * (LONGEST + 1)), (TRAIT, True, 0.9, "a\nb")]
    quotes = quotes_of([*odd, *plain])
    assert quotes.found[TRAIT, True] == [text for *_, text in plain[:MOST]]
    assert len(quotes.said(TRAIT).train) == MOST
    assert not any("unsure" in text for text in quotes.said(TRAIT).train)


def statements_of(trait: str) -> list[Statement]:
    return [
        Statement(trait, f"{'I want' if i % 2 else 'I need no'} number{i}q, friends", bool(i % 2), 0.95)
        for i in range(400)
    ]


def quoted(found: list[Statement]) -> list[tuple[str, Row]]:
    return [
        (example.text_id, row)
        for example in persona_examples(found, TALK)
        for row in example.rows
        if "/" in row.behavior.key
    ]


def test_a_label_says_whether_the_statement_is_on_the_side_of_the_quotes() -> None:
    found = statements_of(TRAIT)
    matches = {text_id_of(s): s.matches for s in found}
    rows = quoted(found)
    assert {row.behavior.key.partition("/")[2] for _, row in rows} == {"said", "denied"}
    for text_id, row in rows:
        same = row.behavior.key.endswith("/said") == matches[text_id]
        assert row.label == (PRESENT if same else ABSENT)
        quotes = [text for text in row.behavior.train if "number" in text]
        assert quotes
        assert all(("need" not in text) == row.behavior.key.endswith("/said") for text in quotes)


def test_held_out_texts_are_neither_quoted_nor_asked_about_by_quotes() -> None:
    found = statements_of(TRAIT)
    held = {s.text for s in found if text_split(text_id_of(s)) != TRAIN}
    rows = quoted(found)
    assert held
    definitions = {text for _, row in rows for text in row.behavior.train}
    assert not [text for text in held for definition in definitions if text.split()[-2] in definition]
    assert all(text_split(text_id) == TRAIN for text_id, _ in rows)


@pytest.mark.parametrize("family", HELD_FAMILIES)
def test_held_out_families_are_never_quoted(family: str) -> None:
    [trait, *_] = [t for t in p.PERSONA[family] if t not in p.LEFT_OUT]
    assert not quoted(statements_of(trait))


def test_what_denies_a_trait_is_trained_on_only() -> None:
    _, row = quoted(statements_of(TRAIT))[0]
    assert splits.family_split(row.behavior.key) == TRAIN
    assert not row.behavior.test


def test_kinds_are_asked_about_by_their_sentences_in_training_alone() -> None:
    talk = [Conversation(exchange(f"Say {i}.", "Here it is. It is good."), f"t{i}", "test") for i in range(60)]

    def made(held: tuple[k.Kind, ...]) -> list[Row]:
        found = insertion_examples(talk, lambda _: 2, lambda _: held)
        return [row for example in found for row in example.rows if row.behavior.key.endswith("/like")]

    rows = made(())
    assert {row.label for row in rows} >= {PRESENT, ABSENT}
    assert not {row.behavior.key.partition("/")[0] for row in rows} & {*k.TEST_KINDS, *k.CALIBRATION_KINDS}
    assert all("{" not in text for row in rows for text in row.behavior.train)
    assert not made((k.BY_KEY[k.TEST_KINDS[0]],))


def test_what_is_made_of_quotes_is_no_behavior_to_be_familiar_with() -> None:
    quoted_only = {"persona:x/said", "weather/like", "attitude/like:a|cats", "attitude/like:a|cats/denied"}
    names = ["persona:x", "weather", "tool_named:a/b", *sorted(quoted_only)]
    count = len(names)
    rows = Rows(
        view=np.zeros(count, np.int32),
        behavior=np.arange(count, dtype=np.int32),
        label=np.zeros(count, np.int8),
        confidence=np.ones(count, np.float16),
        split=np.zeros(count, np.int8),
        group=np.zeros(count, np.int8),
        definition=np.full(count, -1, np.int32),
    )
    data = TrainingData(
        views=Ragged.of([np.array([1], np.uint16)], np.uint16),
        definitions=Ragged.of([np.array([10 + i], np.uint16) for i in range(count)], np.uint16),
        wordings=Ragged.of([[i] for i in range(count)], np.int32),
        rows=rows,
        label_ids=np.arange(3),
        behaviors=np.array(names),
        groups=np.array(["g"]),
        texts=np.array(names),
    )
    familiar = familiarity_of(data)
    assert [name for i, name in enumerate(names) if familiar([10 + i]) > 0] == [
        name for name in names if name not in quoted_only
    ]
