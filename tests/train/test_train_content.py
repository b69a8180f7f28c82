"""What the training content promises: sentences format, negatives are sure, mended replies meet the wish."""

import random
import re
from pathlib import Path

import pytest

from mainspring.text.span import Span, ToolCall
from mainspring.train import dataset, splits
from mainspring.train.content import changed
from mainspring.train.content import kinds as k
from mainspring.train.content.constraints import CONSTRAINTS, Constraint, Wish, constrained
from mainspring.train.content.echoes import ECHOES, echoed
from mainspring.train.content.examples import ABSENT, PRESENT, rng_for, shortened
from mainspring.train.content.facts import Facts
from mainspring.train.content.failures import admission, error, orders
from mainspring.train.content.insertions import insertion_examples
from mainspring.train.content.patterns import reports_error
from mainspring.train.content.repeats import TWICES, repeated
from mainspring.train.content.slots import values
from mainspring.train.content.structural import Pools, _wrong_earlier, structural_examples
from mainspring.train.sources import Conversation, exchange, message

REPLY = "The bridge has 3 arches. It was finished in 1890, after two floods, and people in Lyon still walk over it."
TALK = [
    Conversation(exchange(f"Tell me about bridge {i}.", f"{REPLY} Bridge {i} is one."), f"t/{i}", "test")
    for i in range(300)
]


def test_kinds_know_each_other_and_their_sentences_format() -> None:
    keys = set(k.BY_KEY)
    assert len(k.TRAIN_KINDS) == len(keys) - len(k.TEST_KINDS) - len(k.CALIBRATION_KINDS)
    assert {*k.TEST_KINDS, *k.CALIBRATION_KINDS} <= keys
    for kind in k.KINDS:
        assert kind.near <= keys, kind.key
        assert len(kind.sentences) >= 3, kind.key
        assert kind.test not in kind.clauses, kind.key
        for sentence in kind.sentences:
            assert sentence.format(**values(random.Random(0))).strip()


def test_no_two_kinds_share_a_sentence_or_a_clause() -> None:
    for lists in (
        [s for kind in k.KINDS for s in kind.sentences],
        [c for kind in k.KINDS for c in (*kind.clauses, kind.test)],
    ):
        assert sorted(lists) == sorted(set(lists))


def test_held_out_kinds_are_shown_and_asked_about_on_their_own_texts_alone() -> None:
    held = {"t": (k.BY_KEY["threat"],), "c": ()}
    found = list(insertion_examples(TALK, lambda _: 1, lambda text: held["t" if int(text[2:]) % 2 else "c"]))
    asked = {(int(e.text_id[2:]) % 2, row.behavior.key, row.label) for e in found for row in e.rows}
    assert (1, "threat", PRESENT) in asked
    assert (1, "threat", ABSENT) in asked
    assert not any(key in (*k.TEST_KINDS, *k.CALIBRATION_KINDS) for odd, key, _ in asked if not odd)


def test_an_absent_kind_is_neither_shown_nor_near_what_is() -> None:
    for example in insertion_examples(TALK, lambda _: 2, lambda _: ()):
        shown = [k.BY_KEY[r.behavior.key] for r in example.rows if r.label == PRESENT and r.behavior.key in k.BY_KEY]
        for row in example.rows:
            kind = k.BY_KEY.get(row.behavior.key)
            if kind is None or row.label != ABSENT or kind.key in {s.key for s in shown}:
                continue
            assert not any(k.close(kind, other) for other in shown), kind.key


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda c: c.behavior.key)
def test_a_mended_reply_keeps_the_wish_and_a_plain_one_may_not(constraint: Constraint) -> None:
    seen = set()
    for seed in range(40):
        made = constrained(Facts(TALK[seed].span), constraint, random.Random(seed))
        assert made is not None
        seen.add(made[1])
    assert seen == {True, False}
    wish = Wish("arches", "lantern", 5)
    assert constraint.broken(REPLY, wish)
    assert not constraint.broken(constraint.mend(REPLY, wish), wish)


@pytest.mark.parametrize(
    ("key", "reply", "broken"),
    [
        ("broke_small_openings", "we went home. it rained in Lyon.\nthe end", False),
        ("broke_small_openings", "We went home. it rained.", True),
        ("broke_small_openings", "we went home. It rained.", True),
        ("broke_small_openings", "we went home.\nThe end", True),
        ("broke_small_openings", 'he said "no." Then he left.', True),
        ("broke_small_openings", "- milk\n- bread", False),
        ("broke_small_openings", "- milk\n- Bread", True),
        ("broke_small_first", "the End. It is over.", False),
        ("broke_small_first", '"The end."', True),
        ("broke_small_first", "1. milk", False),
        ("lowercase_asked", "the end. it is over.", False),
        ("lowercase_asked", "the end. It is over.", True),
    ],
)
def test_capitals_break_a_wish_for_small_letters(key: str, reply: str, broken: bool) -> None:
    [chosen] = [c for c in CONSTRAINTS if c.behavior.key == key]
    wish = Wish("a", "b", 5)
    assert chosen.broken(reply, wish) is broken
    assert not chosen.broken(chosen.mend(reply, wish), wish)


def test_wishes_for_small_letters_ask_for_their_own_place_alone() -> None:
    asks = {c.behavior.key: " ".join(c.asks).lower() for c in CONSTRAINTS if c.behavior.key.startswith("broke_small")}
    assert set(asks) == {"broke_small_openings", "broke_small_first"}
    assert "sentence" not in asks["broke_small_first"]
    assert asks["broke_small_openings"].count("sentence") == 3


def pattern(template: str) -> str:
    """What a template with a slot may read like; the slot is a group."""
    return re.sub(r"\\{\w+\\}", r"((?:(?!\\. )[\\w@. -])+?)", re.escape(template))


def test_an_echo_is_wrong_exactly_where_it_says_so() -> None:
    slots = {echo.behavior.key: echo for echo in ECHOES}
    wrong = 0
    for seed in range(200):
        span, told = echoed("", random.Random(seed))
        wrong += sum(bool(v) for v in told.values())
        assert sum(bool(v) for v in told.values()) <= 1
        if not any(told.values()):
            user, reply = Facts(span).users[0], Facts(span).reply
            if "wrong_city" in told:
                assert any(city in user and city in reply for city in k.CITIES)
        for key, v in told.items():
            if key in changed.BY_KEY:
                user, reply = Facts(span).users[0], Facts(span).reply
                given = {value for told in changed.BY_KEY[key].told for value in re.findall(pattern(told), user)}
                assert given
                said = [value for value in given if re.search(rf"(?<![\w-]){re.escape(value)}(?![\w-])", reply)]
                assert bool(said) != v, (key, given, reply)
    assert 50 < wrong < 150
    assert set(slots) == {"wrong_name", "wrong_number", "wrong_date", "wrong_city", "wrong_amount", "wrong_product",
                          "wrong_year", "wrong_company", "wrong_time", *changed.BY_KEY}  # fmt: skip


def test_the_splits_of_texts_are_disjoint_by_construction() -> None:
    assert {splits.text_split(f"t/{i}") for i in range(300)} == {0, 1, 2}


def test_a_part_is_said_twice_exactly_where_it_says_so() -> None:
    seen = set()
    for seed in range(200):
        span, told = repeated("A reply that was there before.", random.Random(seed))
        reply = Facts(span).reply
        for key, twice in told.items():
            if twice is None:  # an offer that is a question, said twice
                assert key == "repeated_question"
                assert told["repeated_offer"]
                continue
            seen.add((key, twice))
            [sort] = [t for t in TWICES if t.key == key]
            counts = [len(re.findall(pattern(part), reply)) for part in sort.parts]
            assert max(counts) == 1 + twice, (key, reply)
    assert seen == {(t.key, twice) for t in TWICES for twice in (True, False)}


def test_failures_are_many_and_the_rule_for_errors_sees_each() -> None:
    rng = random.Random(0)
    found = [error(rng) for _ in range(2000)]
    assert len(set(found)) > 1000
    assert [each for each in found if not reports_error(each)] == []
    assert len({admission(rng) for _ in range(2000)}) > 500
    made = [orders(rng, values(rng)) for _ in range(1000)]
    assert len({order for order, _ in made}) > 800
    assert not [text for pair in made for text in pair if "{" in text]


@pytest.mark.parametrize(
    "result", ['{"error": null, "found": 3}', '{"failed": 0}', "3 rooms are free", '{"ok": true}', "HTTP 200"]
)
def test_what_is_no_failure(result: str) -> None:
    assert not reports_error(result)


def test_a_call_of_before_is_wrong_where_nobody_had_told_its_value() -> None:
    """The output is a text: what is asked about the tool was done on the way."""
    call = ToolCall("book_table", {"city": "Lyon", "people": "4"})
    turns = (
        message("user", "Book a table for 4 in Lyon. Not in Graz, please."),
        message("assistant", "", call),
        message("tool", "Booked in Turku."),
    )
    booking = Conversation(Span(turns, (message("assistant", "Done!"),)), "t/1", "test")
    pools = Pools(("book_table",), {"city": ("Lyon", "Graz", "Turku"), "people": ("4", "12")}, (), ())
    facts, seen = Facts(booking.span), set()
    for seed in range(80):
        made = _wrong_earlier(booking, facts, pools, rng_for("wrong", seed))
        if made is None:  # Graz and 4 had been told
            continue
        span, told = made
        assert (span.output, span.input[0]) == (booking.span.output, turns[0])
        [result] = span.input[2:]
        failed = result != turns[2]
        assert not failed or reports_error(Facts(span).results[-1])
        [found] = [part for part in span.input[1].parts if isinstance(part, ToolCall)]
        assert isinstance(found.arguments, dict)
        changed = tuple(found.arguments.items() - {"city": "Lyon", "people": "4"}.items())
        assert told == {"wrong_argument": bool(changed), "wrong_tool": False}
        seen.add((changed, failed))
    changes = ((), (("city", "Turku"),), (("people", "12"),))
    assert seen == {(change, failed) for change in changes for failed in (False, True)}
    judged_wrong = Conversation(booking.span, "t/1", "test", (("good_step", False),))
    assert _wrong_earlier(judged_wrong, facts, pools, rng_for("wrong")) is None
    talk = [Conversation(booking.span, f"t/{i}", "test") for i in range(40)]
    shown = [e for e in structural_examples(talk, pools) if any(r.behavior.key == "wrong_argument" for r in e.rows)]
    assert {row.label for e in shown for row in e.rows if row.behavior.key == "wrong_argument"} == {PRESENT, ABSENT}


def test_a_shortened_reply_is_the_start_of_the_reply() -> None:
    reply = "It is old. It was built in 1863!\nMany people came. They stayed there. Then they left. Nobody knows why."
    whole = exchange("Tell me about the bridge.", reply)
    found = set()
    for i in range(40):
        short = shortened(Conversation(whole, f"t/{i}", "test", (("good_step", True),)))
        assert short is not None
        assert (short.span.input, short.marks, short.text_id) == (whole.input, (), f"t/{i}")
        found.add(short.span.output[0].text)
    ends = ("old.", "1863!", "came.")
    assert found == {reply[: reply.index(end) + len(end)] for end in ends}


@pytest.mark.parametrize(
    "reply",
    [
        "One. Two.",
        "Do it so:\n\n1. Wash it.\n2. Dry it.\n3. Fold it.\n4. Iron it.",
        "He met Dr. Jekyll and Mr. Hyde and Mrs. Utterson and St. John and Dr. Lanyon",
        "Run this:\nlet n = 1;\nconst even = (n % 2 === 0) ? 1 : 2;\nprint(n);\nreturn n;",
        "1. Wash it. 2. Dry it. 3. Fold it. 4. Iron it. 5. Wear it.",
        "- Wash it.\n- Dry it.\n- Fold it.\n- Iron it.\n- Wear it.",
        "So: ```x = 1``` is how. It is short. It is plain. It is old. It works.",
        "What to do\nWhere to go\nWhom to ask\nWhen to leave\nHow to come back",
    ],
)
def test_what_is_not_shortened(reply: str) -> None:
    assert {shortened(Conversation(exchange("Well?", reply), f"t/{i}", "test")) for i in range(20)} == {None}


def test_short_replies_come_of_training_texts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text by itself, then its short form: held-out rows stay what they were."""
    talk = [Conversation(exchange("Well?", "One. Two. Three. Four. Five."), f"t/{i}", "test") for i in range(200)]
    given: list[list[Conversation]] = []
    monkeypatch.setattr(dataset, "conversations", lambda _: talk)
    monkeypatch.setattr(dataset, "rule_examples", lambda found: given.append(list(found)) or [])
    monkeypatch.setattr(dataset, "insertion_examples", lambda *_: iter(["the next maker"]))
    assert str(next(iter(dataset.examples(Path())))) == "the next maker"
    whole, short = given
    assert sorted(c.text_id for c in whole) == sorted(c.text_id for c in talk)
    assert {c.text_id for c in short} == {c.text_id for c in talk if splits.text_split(c.text_id) == splits.TRAIN}
    assert 150 < len(short) < 190
