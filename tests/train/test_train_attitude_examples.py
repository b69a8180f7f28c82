"""Examples of made-up traits: labels follow from the parts, nothing held out is trained on, no one side tells."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mainspring.text.bundle import Bundle
from mainspring.train import looks, splits
from mainspring.train.content import attitudes as t
from mainspring.train.content import persona as p
from mainspring.train.content.attitude_examples import (
    TRAINED,
    UNSEEN,
    asked_of_user,
    attitude_examples,
    denied,
)
from mainspring.train.content.attitudes import Stance, Topic
from mainspring.train.content.examples import ABSENT, PRESENT, Example, rng_for
from mainspring.train.dataset import Builder
from mainspring.train.metrics import auc
from mainspring.train.skeleton import tokenizer_text, write_skeleton
from mainspring.train.splits import CALIBRATION, TEST, TRAIN, text_split

COUNT = 9_000
SOURCES = Path(__file__).parents[2] / "data" / "sources"


@pytest.fixture(scope="module")
def made() -> list[Example]:
    return list(attitude_examples([], count=COUNT))


@pytest.fixture(scope="module")
def by_key() -> dict[str, Stance]:
    return {stance.key: stance for stance in t.stances()}


def test_definitions_and_statements_are_whole(made: list[Example]) -> None:
    behaviors = {row.behavior.key: row.behavior for example in made for row in example.rows}
    for behavior in behaviors.values():
        assert behavior.train
        assert not [
            text for text in (*behavior.train, *behavior.test) if re.search(r"[{}\[\]|*]|\b[Mm]y\b", plain(text))
        ]
    for example in made:
        assert not [m.text for m in (*example.span.input, *example.span.output) if re.search(r"[{}\[\]|*]", m.text)]


def plain(definition: str) -> str:
    """Without what it quotes, which may be in the first person."""
    return "" if re.search(r'"|comes near to this', definition) else definition


def target(key: str, by_key: dict[str, Stance]) -> tuple[Stance, str]:
    """The stance that a behavior is about, and whether it is denied or asked of the user."""
    base, _, kind = key.rpartition("/")
    return (by_key[base], kind) if kind in ("denied", "user") else (by_key[key], "")


def test_labels_follow_from_attitude_side_and_topic(made: list[Example], by_key: dict[str, Stance]) -> None:
    """Where only the assistant says something, and only one thing."""
    seen = Counter[tuple[str, int]]()
    for example in made:
        own = by_key[example.text_id.rpartition("/")[0]]
        asks, [said] = [m.text for m in example.span.input], [m.text for m in example.span.output]
        [*_, question] = asks
        if question not in p.OPENERS or len(said) > 240 or len(example.rows) > 4 or two(said, own):
            continue
        for row in example.rows:
            about, kind = target(row.behavior.key, by_key)
            same = about.attitude == own.attitude and about.topic == own.topic
            if kind == "denied":
                assert row.label == (PRESENT if same and about.side != own.side else ABSENT), example
            else:
                assert row.label == (PRESENT if about == own else ABSENT), example
            seen[kind, row.label] += 1
    assert all(seen[kind, side] > 500 for kind in ("", "denied") for side in (PRESENT, ABSENT))


def two(said: str, own: Stance) -> bool:
    """Whether more is said than one sentence of one's own stance."""
    around = [(before, after) for before in ("", *p.BEFORE) for after in ("", *p.AFTER)]
    texts = [text for text in statements(own) if text in said]
    return not any(said == before + text + after for text in texts for before, after in around)


@cache
def statements(own: Stance) -> frozenset[str]:
    """All that say it."""
    return frozenset(t.said(own, rng_for("any"), 10_000))


def test_of_two_things_said_each_has_its_own_side(made: list[Example], by_key: dict[str, Stance]) -> None:
    found = 0
    for example in made:
        [said] = [m.text for m in example.span.output]
        own = by_key[example.text_id.rpartition("/")[0]]
        if example.span.input[0].text not in p.OPENERS or not two(said, own):
            continue
        found += 1
        right = [target(r.behavior.key, by_key)[0] for r in example.rows if r.label == PRESENT]
        wrong = [target(r.behavior.key, by_key)[0] for r in example.rows if r.label == ABSENT]
        assert own in right
        assert [stance.contrary for stance in right] == wrong
        assert len({stance.side for stance in right}) == 2
    assert found > 500


def test_yes_and_no_answer_for_the_statement_asked_about(made: list[Example], by_key: dict[str, Stance]) -> None:
    answers = Counter[bool]()
    for example in made:
        [said] = [m.text for m in example.span.output]
        if said not in (*p.YES, *p.NO):
            continue
        own, agrees = by_key[example.text_id.rpartition("/")[0]], said in p.YES
        answers[agrees] += 1
        for row in example.rows:
            about, kind = target(row.behavior.key, by_key)
            assert about.topic == own.topic
            mine = (about.side == own.side) != (kind == "denied")
            assert row.label == (PRESENT if mine == agrees else ABSENT)
            assert row.confidence == 1 or not agrees
    assert min(answers.values()) > 200


def test_what_the_user_says_is_not_the_assistants(made: list[Example], by_key: dict[str, Stance]) -> None:
    found = 0
    for example in made:
        own, texts = by_key[example.text_id.rpartition("/")[0]], [m.text for m in example.span.input]
        if texts[0] not in statements(own):
            continue
        found += 1
        labels = {row.behavior.key: row.label for row in example.rows}
        assert labels[own.key] == ABSENT
        assert labels.get(f"{own.key}/user", PRESENT) == PRESENT
        assert all(label == ABSENT for key, label in labels.items() if key.endswith("/user") and own.key not in key)
    assert found > 500


def test_held_out_topics_are_never_trained_on(made: list[Example], by_key: dict[str, Stance]) -> None:
    held: set[str] = set()
    trained: set[str] = set()
    for found in t.topics().values():
        for topic in found:
            (held if topic.held else trained).update(name for names in topic.names for name in names)
    assert not held & trained
    for example in made:
        split = text_split(example.text_id)
        groups = {row.group for row in example.rows}
        assert groups == ({TRAINED} if split == TRAIN else {UNSEEN})
        assert splits.example_split(example) == split
        assert all(splits.report_group(row, split) == row.group for row in example.rows)
        assert all(bool(row.behavior.test) == (split != TRAIN) for row in example.rows)
        assert all(target(row.behavior.key, by_key)[0].topic.held == (split != TRAIN) for row in example.rows)
    assert {text_split(e.text_id) for e in made} == {TRAIN, CALIBRATION, TEST}


def test_held_out_rows_are_marked_by_attitude_in_definitions_that_are_never_trained_on(
    made: list[Example], tmp_path: Path
) -> None:
    write_skeleton(tmp_path, tokenizer_text(SOURCES))
    kept: list[dict[str, Any]] = []
    builder = Builder(Bundle.load(tmp_path), kept.append)
    for example in made[::8] + [e for e in made if text_split(e.text_id) != TRAIN]:
        builder.add(example, limit=1536)
    data = builder.finish()
    assert {entry["behavior_type"] for entry in kept} == {UNSEEN}
    assert UNSEEN not in looks.JUDGED
    cells = Counter((entry["metadata"]["split"], entry["def_id"], entry["label"]) for entry in kept)
    assert {def_id for _, def_id, _ in cells} == {f"attitude/{key}" for key in t.attitudes()}
    assert max(cells.values()) == splits.CAP[UNSEEN] >= 20
    trained = np.unique(data.rows.behavior[data.rows.split == TRAIN])
    seen = {str(data.texts[i]) for number in trained for i in data.wordings[number]}
    assert seen
    assert not seen & {entry["behavior_definition"] for entry in kept}


def test_no_statement_of_a_stance_is_said_twice(made: list[Example]) -> None:
    ids = Counter(example.text_id for example in made)
    assert set(ids.values()) == {1}
    for stance in list(t.stances())[::50]:
        texts = t.said(stance, rng_for(1), 10_000)
        assert len(set(texts)) == len(texts) >= 4


def test_the_users_own_words_are_theirs() -> None:
    [spelling] = [topic for topic in t.topics()["proud"] if topic.key == "my spelling"]
    behavior = asked_of_user(Stance(t.attitudes()["proud"], 0, spelling))
    assert behavior is not None
    assert all("their" in text and not re.search(r"\b(?:its|my|I)\b", text) for text in behavior.train)
    label = Topic("label", "own", (("the texts I learned from",),), ("label",), held=False)
    assert asked_of_user(Stance(t.attitudes()["keep"], 0, label)) is None
    assert all("texts it learned from" in text for text in denied(Stance(t.attitudes()["keep"], 0, label)).train)


def sample(made: Iterable[Example]) -> tuple[list[str], list[str], npt.NDArray[np.bool_]]:
    """(what was said, definition, present) of training rows, those of one example side by side."""
    said, definitions, labels = [], [], []
    for example in made:
        text = "\n".join(m.text for m in (*example.span.input, *example.span.output))
        for row in example.rows:
            if row.group == TRAINED:
                said.append(text)
                definitions.append(rng_for(example.text_id, row.behavior.key).choice(row.behavior.train))
                labels.append(row.label == PRESENT)
    return said, definitions, np.array(labels)


def told_by_words(texts: Sequence[str], present: npt.NDArray[np.bool_]) -> float:
    """AUC on the second half of a logistic regression over bags of words, fitted to the first."""
    bags = [re.findall(r"[\w']+", text.lower()) for text in texts]
    most = Counter(word for bag in bags for word in set(bag)).most_common(600)
    place = {word: i for i, (word, _) in enumerate(most)}
    x = np.zeros((len(bags), len(place) + 1), np.float32)
    x[:, -1] = 1
    for row, bag in enumerate(bags):
        x[row, [place[word] for word in bag if word in place]] = 1
    half, w = len(x) // 2, np.zeros(x.shape[1], np.float32)
    for _ in range(150):
        wrong = 1 / (1 + np.exp(-x[:half] @ w)) - present[:half]
        w -= 2.0 * (x[:half].T @ wrong / half + 1e-4 * w)
    return auc((x[half:] @ w).astype(np.float64), present[half:])


def test_neither_statement_nor_definition_alone_tells_the_label(made: list[Example]) -> None:
    order = sorted(made, key=lambda example: rng_for(example.text_id).random())[:5000]
    said, definitions, present = sample(order)
    assert abs(present.mean() - 0.5) < 0.02
    assert 0.44 < told_by_words(said, present) < 0.56
    assert 0.44 < told_by_words(definitions, present) < 0.56


def test_a_lopsided_choice_of_rows_would_be_noticed(made: list[Example]) -> None:
    order = sorted(made, key=lambda example: rng_for(example.text_id).random())
    denials = [e for e in order if any("/denied" in r.behavior.key for r in e.rows)]
    lopsided = [
        Example(e.span, e.text_id, e.source, tuple(r for r in e.rows if "/denied" not in r.behavior.key or r.label))
        for e in denials[:5000]
    ]
    _, definitions, present = sample(lopsided)
    assert told_by_words(definitions, present) > 0.6
