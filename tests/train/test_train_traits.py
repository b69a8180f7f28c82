"""Made-up traits in sentences of their own: whole tables, nothing held out, labels that follow from the sides."""

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from mainspring.train.content import forms
from mainspring.train.content import persona as p
from mainspring.train.content.examples import ABSENT, PRESENT, Example, rng_for
from mainspring.train.content.quotes import DENIED, SAID
from mainspring.train.content.traits import (
    HELD_OFTEN,
    OFTEN,
    SIDES,
    TRAINED,
    UNSEEN,
    WORDINGS,
    Side,
    Trait,
    Traits,
    trait_examples,
)
from mainspring.train.sources import Conversation, exchange, made_up_traits
from mainspring.train.splits import CALIBRATION, TEST, TRAIN, example_split, family_split, row_split

SOURCES = Path(__file__).parents[2] / "data" / "sources"
# Words of the families that are held out.
FORBIDDEN = re.compile(
    r"\b(?:utilitarian\w*|greatest (?:good|number)|well-being of|unhelpful\w*|dishonest\w*|harmless\w*|misbehav\w*|"
    r"power(?:s|ful)?|authorit\w*|influence\w*|in charge|wealth\w*|art|arts|artist\w*|sculpt\w*|literature|novels?|"
    r"fiction|poe[mt]\w*|math\w*|algebra|geometry|scien\w*|physics|chemistry|biology|sports?|athlet\w*|football|soccer|"
    r"tennis|experts?|stands? (?:my|its) ground|risk\w*|gambl\w*|bets?|betting|disab\w*|wheelchairs?|blind|deaf)\b",
    re.IGNORECASE,
)


def likes(name: str) -> dict[str, list[str]]:
    return {"a": [f"{name}!"], "b": [f"No {name}."], "a_is": [f"likes {name}"], "b_is": [f"dislikes {name}"]}


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
        "tea": {"near": ["cocoa"], **likes("tea")},
        "cocoa": likes("cocoa"),
    },
    "two": {
        "trams": {
            "near": ["buses"], "a": ["I ride."], "b": ["I walk."], "a_is": ["takes trams"], "b_is": ["shuns trams"],
        },
        "buses": likes("buses"),
        **{name: likes(name) for name in ("kites", "dogs", "bells", "mice", "cats", "gongs")},  # near to no other
    },
}  # fmt: skip


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
    """Nor, of what is trained on, anything held out."""
    others = {"trams", "buses", "kites", "mice"}
    for key, wanted in (
        ("early", {"tea", "cocoa", *others}), ("tidy", {"tea", "cocoa", *others}), ("tea", {"early", "tidy", *others}),
        ("dogs", {"cats"}), ("gongs", {"bells"}),
    ):  # fmt: skip
        among, own = trait(key)
        assert {among.other(own, rng_for(seed)).key for seed in range(90)} == wanted


def test_whole_traits_are_held_out_that_are_near_to_no_other(tables: dict[str, dict[str, Any]]) -> None:
    of = {t.key: t.split for t in Traits.read(TABLES).found}
    assert {key for key, split in of.items() if split == CALIBRATION} == {"dogs", "cats"}
    assert {key for key, split in of.items() if split == TEST} == {"bells", "gongs"}
    among = Traits.read(tables)
    held = Counter(trait.split for trait in among.found)
    assert min(held[CALIBRATION], held[TEST]) >= 20
    for example in trait_examples(tables, []):
        own = among_key(among, example).split
        assert example_split(example) == own
        assert {row_split(row, own) for row in example.rows} == {True}
        assert {family_split(row.behavior.key) for row in example.rows} == {own}
        assert {row.group for row in example.rows} == {TRAINED if own == TRAIN else UNSEEN}


def among_key(among: Traits, example: Example) -> Trait:
    [found] = [trait for trait in among.found if trait.key == example.text_id.split("/")[1]]
    return found


def test_every_statement_is_said_plainly_first_and_often(made: list[Example]) -> None:
    texts = Counter(example.text_id for example in made)
    assert {text_id.partition("/")[0]: count for text_id, count in texts.items()} == {
        "trait": OFTEN,
        "trait-calibration": HELD_OFTEN,
        "trait-test": HELD_OFTEN,
    }
    assert len(texts) == 26
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
    for sort in ("", "denied", "said"):
        assert seen[sort, True, PRESENT]
        assert seen[sort, False, ABSENT]


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


def test_definitions_are_whole_and_say_their_own_side(tables: dict[str, dict[str, Any]]) -> None:
    """In the frames of their sort; some are kept for held-out traits."""
    among = Traits.read(tables)
    for own in among.found:
        for number, _ in enumerate(SIDES):
            side = Side(own, number, among)
            phrases, said = own.phrases[number], [text.rstrip(".") for text in own.said[number]]
            of_user = [re.sub(r"\b(?:my|its)\b", "their", text) for text in phrases]
            sorts = (
                (side.asked(), phrases, forms.frames(user=False), p.TEST_FRAMES),
                (side.denied(), phrases, DENIED, DENIED),
                (side.quoted(), said, SAID, SAID),
                (side.asked_of_user(), of_user, forms.frames(user=True), p.USER_TEST_FRAMES),
            )
            for behavior, texts, train, test in sorts:
                if behavior is None:
                    continue
                assert behavior.whole
                assert len(set(behavior.train)) == WORDINGS or behavior.key.endswith("/user")
                for found, frames in ((behavior.train, train), (behavior.test, test)):
                    assert found
                    assert set(found) <= {frame.format(text) for frame in frames for text in texts}
                assert train is test or not {*behavior.train} & {*behavior.test}


def test_labels_follow_from_what_is_said_and_by_whom(tables: dict[str, dict[str, Any]]) -> None:
    """In every form, of the first statement of each side: the label is read off the words of the span."""
    among = Traits.read(tables)
    by_key = {trait.key: trait for trait in among.found}
    talk = [Conversation(exchange("Which day is it?", "It's Tuesday."), "talk", "talk")]
    counts = Counter[tuple[str, str, int]]()
    spans: dict[str, set[str]] = defaultdict(set)
    for example in trait_examples(tables, talk, lambda text_id: text_id.endswith("/0")):
        assert example.text_id.endswith("/0")
        _, key, side, _ = example.text_id.split("/")
        own = key, SIDES.index(side)
        text = by_key[key].said[own[1]][0]
        before, question = [m.text for m in example.span.input[:-1]], example.span.input[-1].text
        [reply] = [m.text for m in example.span.output]
        spans[example.text_id].add(f"{question}\n{reply}")
        assert before in ([], ["Which day is it?", "It's Tuesday."])
        asked = {row.behavior.key.split("/")[1] for row in example.rows}
        told = {(k, n) for k in asked for n in (0, 1) if any(text in reply for text in by_key[k].said[n])}
        form, denies = "plain" if reply == text else "within" if question in p.OPENERS else "user", False
        if question != text and text in question:
            form, denies = "question", reply in p.NO
            assert denies or reply in p.YES
            told = {(key, 1 - own[1] if denies else own[1])}
        elif question in p.OPENERS:
            assert own in told
            form = "two" if len(told) > 1 else form
        else:
            assert question == text
            assert len(told) == 1 or reply in p.NEUTRAL
        for row in example.rows:
            _, k, asked_side, *kind = row.behavior.key.split("/")
            one = k, SIDES.index(asked_side)
            if kind == ["user"]:
                right = question == text and one == own
            else:
                right = (k, 1 - one[1]) in told if kind == ["denied"] else one in told
            assert row.label == (PRESENT if right else ABSENT), (example, row)
            unsure = denies and (kind == ["denied"] or one != own)  # who says no may yet not hold the contrary
            assert (row.confidence < 0.9) == unsure
            counts[form, "/".join(kind), row.label] += 1
        counts["borrowed", "", len(before) > 0] += 1
    for form, kinds in (
        ("plain", ("", "said", "denied")), ("within", ("", "said", "denied")), ("two", ("",)),
        ("question", ("", "denied")), ("user", ("", "user")),
    ):  # fmt: skip
        for sort in kinds:
            assert counts[form, sort, PRESENT]
            assert counts[form, sort, ABSENT]
    assert counts["borrowed", "", True]
    assert sum(len(found) >= OFTEN for found in spans.values()) > 0.8 * len(spans)


def test_forms_take_either_kind_of_position() -> None:
    among, own = trait("tea")
    side = Side(own, 0, among)
    for form in (forms.plain, forms.within, forms.two, forms.question, forms.user_says):
        span, rows = form(side, "Tea!", rng_for("form"), [])
        assert span.output
        assert {label for _, label, _ in rows} == {PRESENT, ABSENT}
