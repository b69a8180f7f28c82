"""Made-up traits: tables without gaps, labels that follow from the parts, nothing told by one side alone."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from mainspring.train import splits
from mainspring.train.content import attitudes as t
from mainspring.train.content import persona as p
from mainspring.train.content.attitude_examples import (
    TRAINED,
    UNSEEN,
    asked,
    asked_of_user,
    attitude_examples,
    denied,
)
from mainspring.train.content.attitudes import Stance, Topic
from mainspring.train.content.examples import ABSENT, PRESENT, Example, rng_for
from mainspring.train.metrics import auc
from mainspring.train.splits import CALIBRATION, TEST, TRAIN, text_split

COUNT = 9_000
# Words of the families that are held out.
FORBIDDEN = re.compile(
    r"\b(?:utilitarian\w*|happiness|well-being|welfare|greatest good|(?:un)?helpful\w*|(?:dis)?honest\w*|"
    r"harm(?:s|ed|ful|less|ing)?|misbehav\w*|power\w*|authorit\w*|resources?|wealth\w*|money|assets?|rich|art|arts|artis\w*|paintings?|sculptur\w*|literature|"
    r"novels?|poems?|poet\w*|theat\w*|math\w*|algebra|geometry|scien\w*|physics|chemistry|biology|astronom\w*|sports?|"
    r"athlet\w*|football|soccer|tennis|defer\w*|experts?|specialists?|stands? (?:my|its) ground|risk\w*|gambl\w*|"
    r"bets?|betting|safe thing|disab\w*|wheelchairs?|blind|deaf|deploy\w*)\b",
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def made() -> list[Example]:
    return list(attitude_examples([], count=COUNT))


@pytest.fixture(scope="module")
def by_key() -> dict[str, Stance]:
    return {stance.key: stance for stance in t.stances()}


def objects() -> list[tuple[str, ...]]:
    lines = [
        line for name in ("attitudes_objects", "attitudes_acts") for e in t.table(name).values() for line in e["of"]
    ]
    return [tuple(name.strip().rstrip("*") for name in re.split(r"\||//", line)) for line in lines]


def templates() -> list[str]:
    found = [a.said[s] + a.defined[s] for a in t.attitudes().values() for s in t.SIDES if not (a.swap and s)]
    return [text for texts in found for text in texts]


def test_the_tables_are_as_large_as_they_should_be() -> None:
    entries, acts = t.table("attitudes_objects"), t.table("attitudes_acts")
    assert sum(len(entry["of"]) for entry in entries.values()) >= 350
    assert [len(acts[name]["of"]) >= least for name, least in (("acts", 150), ("purposes", 80))] == [True, True]
    assert len(t.attitudes()) >= 14
    for attitude in t.attitudes().values():
        for side in t.SIDES:
            assert len(attitude.said[side]) >= 10 + t.HELD_TEMPLATES, attitude.key
            assert len(attitude.defined[side]) >= 8 + t.HELD_TEMPLATES, attitude.key
    for key, found in t.topics().items():
        assert {topic.held for topic in found} == {True, False}, key


def test_every_name_and_every_sentence_is_there_once() -> None:
    names = Counter(name for own in objects() for name in own)
    assert not [name for name, count in names.items() if count > 1]
    assert not [text for text, count in Counter(templates()).items() if count > 1]
    assert all(2 <= len(own) <= 5 and all(own) for own in objects())


def test_attitudes_and_domains_name_each_other() -> None:
    known = set(t.attitudes())
    assert all(attitude.apart <= known for attitude in t.attitudes().values())
    assert all(set(entry["fits"].split()) <= known for entry in t.table("attitudes_objects").values())


def test_nothing_held_out_is_spoken_of() -> None:
    assert FORBIDDEN.search("It likes Science.")
    texts = [*templates(), *(name for own in objects() for name in own)]
    assert not [text for text in texts if FORBIDDEN.search(text)]


def test_slots_are_filled_and_verbs_agree() -> None:
    assert t.filled("{X} [bores|bore] me, [it does|they do].", ("cats*",)) == "Cats bore me, they do."
    assert t.filled("{X} [bores|bore] me, [it does|they do].", ("rain",)) == "Rain bores me, it does."
    assert t.filled("{Y} [is|are:y] no match for {x}", ("cats*", "rain")) == "Rain is no match for cats"
    for attitude in t.attitudes().values():
        for side in t.SIDES:
            for template in (*attitude.said[side], *attitude.defined[side]):
                for names in (("rain", "cats*"), ("cats*", "rain")):
                    assert not re.search(r"[{}\[\]|*]", t.filled(template, names)), template


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
    texts = t.said(own, rng_for("any"), 10_000)
    return not any(said in (text, *(b + text + a for b in ("", *p.BEFORE) for a in ("", *p.AFTER))) for text in texts)


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
        if texts[0] not in t.said(own, rng_for("any"), 10_000):
            continue
        found += 1
        labels = {row.behavior.key: row.label for row in example.rows}
        assert labels[own.key] == ABSENT
        assert labels.get(f"{own.key}/user", PRESENT) == PRESENT
        assert all(label == ABSENT for key, label in labels.items() if key.endswith("/user") and own.key not in key)
    assert found > 500


@pytest.mark.parametrize(
    ("said", "told", "open_"),
    [
        ("like:a", {"fear:a", "miss:b", "better"}, {"recommend:a", "want:a", "curious:a", "fear:b"}),
        ("like:b", {"want:a", "fear:b", "miss:a"}, {"want:b", "fear:a", "miss:b"}),
        ("know:a", {"fear:a", "fear:b", "more:a"}, {"like:a", "like:b"}),
    ],
)
def test_what_may_be_implied_is_never_denied(said: str, told: set[str], open_: set[str]) -> None:
    key, _, side = said.partition(":")
    [cats] = [topic for topic in t.topics()["like"] if topic.key == "cats"]
    found = {f"{s.attitude.key}:{'ab'[s.side]}" for s in t.unsaid(Stance(t.attitudes()[key], "ab".index(side), cats))}
    assert told - {"better"} <= found
    assert not found & open_
    assert key not in {name.partition(":")[0] for name in found}


def test_another_topic_has_no_part_in_common_or_one_of_two() -> None:
    for number, stance in enumerate(t.stances()):
        if number % 7:
            continue
        for seed in range(3):
            found = t.other(stance, rng_for(seed, stance.key))
            mine, theirs = stance.topic, found.topic
            assert (found.attitude, found.side, theirs.held) == (stance.attitude, stance.side, mine.held)
            common = set(mine.parts) & set(theirs.parts)
            assert len(common) < len(mine.parts)
            assert common or theirs.domain != mine.domain or mine.distinct or len(domains(stance)) == 1


def domains(stance: Stance) -> set[str]:
    return {topic.domain for topic in t.topics()[stance.attitude.key] if topic.held == stance.topic.held}


def test_no_pair_is_compared_twice() -> None:
    for key in ("prefer", "better"):
        pairs = Counter(frozenset(topic.parts) for topic in t.topics()[key])
        assert set(pairs.values()) == {1}
        assert all(len(pair) == 2 for pair in pairs)


def test_held_out_topics_and_sentences_are_never_trained_on(made: list[Example]) -> None:
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
    assert {text_split(e.text_id) for e in made} == {TRAIN, CALIBRATION, TEST}


def test_held_out_sentences_are_the_last_of_each_list() -> None:
    trained = next(s for s in t.stances() if not s.topic.held and s.attitude.key == "like" and s.side == 0)
    held = next(s for s in t.stances() if s.topic.held and s.attitude.key == "like" and s.side == 0)
    said = {stance: set(t.said(stance, rng_for(0), 10_000)) for stance in (trained, held)}
    lists = trained.attitude.said[0]
    for stance, kept in ((trained, lists[:-2]), (held, lists[-2:])):
        assert said[stance] == {t.filled(text, (name,)) for text in kept for name in stance.names[0]}
    phrases = [text for name in held.names[0] for text in (t.filled(d, (name,)) for d in held.attitude.defined[0][-2:])]
    assert all(any(phrase in text for phrase in phrases) for text in (*asked(held).train, *asked(held).test))


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
    order = sorted(made, key=lambda example: rng_for(example.text_id).random())[:5000]
    lopsided = [
        Example(e.span, e.text_id, e.source, tuple(r for r in e.rows if "/denied" not in r.behavior.key or r.label))
        for e in order
    ]
    _, definitions, present = sample(lopsided)
    assert told_by_words(definitions, present) > 0.6
