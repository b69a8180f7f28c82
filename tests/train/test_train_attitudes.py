"""Tables of made-up traits: large enough, without gaps or repeats, and nothing of what is held out."""

import re
from collections import Counter

import pytest

from mainspring.train.content import attitudes as t
from mainspring.train.content.attitude_examples import asked
from mainspring.train.content.attitudes import Stance
from mainspring.train.content.examples import rng_for

# Words of the families that are held out.
FORBIDDEN = re.compile(
    r"\b(?:utilitarian\w*|happiness|well-being|welfare|greatest good|(?:un)?helpful\w*|(?:dis)?honest\w*|"
    r"harm(?:s|ed|ful|less|ing)?|misbehav\w*|power\w*|authorit\w*|resources?|wealth\w*|money|assets?|rich|"
    r"art|arts|artis\w*|paintings?|sculptur\w*|literature|"
    r"novels?|poems?|poet\w*|theat\w*|math\w*|algebra|geometry|scien\w*|physics|chemistry|biology|astronom\w*|sports?|"
    r"athlet\w*|football|soccer|tennis|defer\w*|experts?|specialists?|stands? (?:my|its) ground|risk\w*|gambl\w*|"
    r"bets?|betting|safe thing|disab\w*|wheelchairs?|blind|deaf|deploy\w*)\b",
    re.IGNORECASE,
)


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


def test_held_out_sentences_are_the_last_of_each_list() -> None:
    trained = next(s for s in t.stances() if not s.topic.held and s.attitude.key == "like" and s.side == 0)
    held = next(s for s in t.stances() if s.topic.held and s.attitude.key == "like" and s.side == 0)
    said = {stance: set(t.said(stance, rng_for(0), 10_000)) for stance in (trained, held)}
    lists = trained.attitude.said[0]
    for stance, kept in ((trained, lists[:-2]), (held, lists[-2:])):
        assert said[stance] == {t.filled(text, (name,)) for text in kept for name in stance.names[0]}
    phrases = [text for name in held.names[0] for text in (t.filled(d, (name,)) for d in held.attitude.defined[0][-2:])]
    assert all(any(phrase in text for phrase in phrases) for text in (*asked(held).train, *asked(held).test))
