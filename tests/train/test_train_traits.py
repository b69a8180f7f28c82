"""Made-up traits in sentences of their own: whole tables, nothing held out, labels that follow from the sides."""

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from mainspring.train.content import forms
from mainspring.train.content import persona as p
from mainspring.train.content.examples import ABSENT, PRESENT, Example, rng_for
from mainspring.train.content.traits import OFTEN, SIDES, Side, Trait, Traits, trait_examples
from mainspring.train.sources import made_up_traits

SOURCES = Path(__file__).parents[2] / "data" / "sources"
# Words of the families that are held out.
FORBIDDEN = re.compile(
    r"\b(?:utilitarian\w*|greatest (?:good|number)|well-being of|unhelpful\w*|dishonest\w*|harmless\w*|misbehav\w*|"
    r"power(?:s|ful)?|authorit\w*|influence\w*|in charge|wealth\w*|art|arts|artist\w*|sculpt\w*|literature|novels?|"
    r"fiction|poe[mt]\w*|math\w*|algebra|geometry|scien\w*|physics|chemistry|biology|sports?|athlet\w*|football|soccer|"
    r"tennis|experts?|stands? (?:my|its) ground|risk\w*|gambl\w*|bets?|betting|disab\w*|wheelchairs?|blind|deaf)\b",
    re.IGNORECASE,
)
TABLES: dict[str, dict[str, Any]] = {
    "one": {
        "early": {"a": ["Up at five."], "b": ["I sleep in."], "a_is": ["gets up early"], "b_is": ["gets up late"]},
        "tidy": {
            "near": ["early"],
            "a": ["A place for each thing.", "I sweep."],
            "b": ["Heaps.", "I never sweep."],
            "a_is": ["keeps its room tidy"],
            "b_is": ["leaves its room as it is", "thinks little of order in itself"],
        },
        "tea": {"a": ["Tea!"], "b": ["No tea."], "a_is": ["likes tea"], "b_is": ["dislikes tea"]},
    },
    "two": {"trams": {"a": ["I ride."], "b": ["I walk."], "a_is": ["takes trams"], "b_is": ["shuns trams"]}},
}


@pytest.fixture(scope="module")
def tables() -> dict[str, dict[str, Any]]:
    return made_up_traits(SOURCES)


@pytest.fixture(scope="module")
def made() -> list[Example]:
    return list(trait_examples(TABLES, []))


def test_the_tables_are_large_and_say_nothing_twice(tables: dict[str, dict[str, Any]]) -> None:
    found = Traits.read(tables).found
    assert len(found) >= 700
    said = Counter(text for trait in found for side in trait.said for text in side)
    assert [text for text, count in said.items() if count > 1] == []
    owners: dict[str, list[Trait]] = defaultdict(list)
    for trait in found:
        for text in {text for side in trait.phrases for text in side}:
            owners[text].append(trait)
    for text, (one, *others) in owners.items():  # asked about as something else they would be labelled falsely
        assert all(other.key in one.near or one.key in other.near for other in others), text
    for trait in found:
        assert [len(side) for side in trait.said] == [6, 6], trait.key
        assert [len(side) for side in trait.phrases] == [4, 4], trait.key
        assert trait.near <= {other.key for other in found} - {trait.key}, trait.key
        assert all(text[-1] in ".!?" for side in trait.said for text in side), trait.key
        assert all(text[0].islower() and text[-1] not in ".!?" for side in trait.phrases for text in side), trait.key


def test_nothing_held_out_is_spoken_of(tables: dict[str, dict[str, Any]]) -> None:
    assert FORBIDDEN.search("It likes Science.")
    texts = [text for trait in Traits.read(tables).found for side in (*trait.said, *trait.phrases) for text in side]
    assert [text for text in texts if FORBIDDEN.search(text)] == []


def test_no_two_traits_share_a_key() -> None:
    with pytest.raises(ValueError, match="same key"):
        Traits.read({"one": TABLES["one"], "two": TABLES["one"]})


def trait(key: str) -> tuple[Traits, Trait]:
    among = Traits.read(TABLES)
    [found] = [one for one in among.found if one.key == key]
    return among, found


def test_what_is_near_is_never_asked_as_something_else() -> None:
    for key, wanted in (("early", {"tea", "trams"}), ("tidy", {"tea", "trams"}), ("tea", {"early", "tidy", "trams"})):
        among, own = trait(key)
        assert {among.other(own, rng_for(seed)).key for seed in range(60)} == wanted


def test_every_statement_is_said_plainly_first_and_often(made: list[Example]) -> None:
    texts = Counter(example.text_id for example in made)
    assert set(texts.values()) == {OFTEN}
    assert len(texts) == 10
    first = {example.text_id: example for example in reversed(made)}
    for text_id, example in first.items():
        _, key, side, place = text_id.split("/")
        [entry] = [table[key] for table in TABLES.values() if key in table]
        assert [m.text for m in example.span.output] == [entry[side][int(place)]]


def test_labels_follow_from_the_sides(made: list[Example]) -> None:
    """Of spans in which one thing alone is said, by the assistant."""
    seen = Counter[tuple[str, bool, int]]()
    for example in made:
        own, side = example.text_id.split("/")[1:3]
        [*_, question] = [m.text for m in example.span.input]
        [reply] = [m.text for m in example.span.output]
        if question not in p.OPENERS or (len(example.rows) == 4 and any(link in reply for link in ("\n", "Apart"))):
            continue
        for row in example.rows:
            _, key, asked, *kind = row.behavior.key.split("/")
            if key != own:
                continue
            same = (asked == side) != (kind == ["denied"])
            assert row.label == (PRESENT if same else ABSENT), (example, row)
            assert row.confidence > 0.9
            seen["/".join(kind), same, row.label] += 1
    for kind in ("", "denied", "said"):
        assert seen[kind, True, PRESENT]
        assert seen[kind, False, ABSENT]


def test_what_the_user_says_is_the_users(made: list[Example]) -> None:
    found = [row for example in made for row in example.rows if row.behavior.key.endswith("/user")]
    assert {row.label for row in found} == {PRESENT, ABSENT}
    for row in found:
        assert row.behavior.needs == ("user",)
        assert not [text for text in row.behavior.train if re.search(r"\b(?:its|itself)\b", text)]
    among, own = trait("tidy")
    tidy = Side(own, 0, among).asked_of_user()
    assert tidy is not None
    assert all("keeps their room tidy" in text for text in tidy.train)
    assert Side(own, 1, among).asked_of_user() is None  # neither phrase can be said of the user by a word alone


def test_definitions_are_whole(tables: dict[str, dict[str, Any]]) -> None:
    among = Traits.read(tables)
    for own in among.found:
        for number, _ in enumerate(SIDES):
            side = Side(own, number, among)
            for behavior in (side.asked(), side.denied(), side.quoted(), side.asked_of_user()):
                if behavior is not None:
                    assert behavior.whole
                    assert all((behavior.train, behavior.test))  # held-out texts are asked about in either
                    assert not [text for text in (*behavior.train, *behavior.test) if re.search(r"[{}]", text)]


def test_forms_take_either_kind_of_position() -> None:
    among, own = trait("tea")
    side = Side(own, 0, among)
    for form in (forms.plain, forms.within, forms.two, forms.question, forms.user_says):
        span, rows = form(side, "Tea!", rng_for("form"), [])
        assert span.output
        assert {label for _, label, _ in rows} == {PRESENT, ABSENT}
