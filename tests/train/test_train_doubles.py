"""Things said twice, letters' case and calls side by side: each label holds of the text that was made."""

import random
import re
from collections.abc import Callable

import pytest

from mainspring.text.span import Message, Span, ToolCall, ToolResult
from mainspring.train.content import calls, casing, doubles, echoes
from mainspring.train.content.facts import Facts, sentences
from mainspring.train.content.repeats import repeated
from mainspring.train.sources import exchange, message

REPLY = (
    "The old bridge has three arches of stone. It was finished in 1890 after two floods. People still walk over it "
    "every day. In winter the river freezes below. A small museum tells the story of its builders."
)
OTHERS = (
    "Bread needs flour, water and some patience. Knead the dough for ten minutes at least. Let it rest in the warm.",
    "Chess is played on sixty-four squares by two people. White moves first in every game. A draw is quite common.",
)
ASKED = (
    "How long does bread have to rest before baking?",
    "Who moves first in a game of chess?",
    "Where is the museum?",
)
TALK = Span((message("user", "Tell me about the bridge. I would like to visit it."),), (message("assistant", REPLY),))
TURNS = Span(
    (
        message("user", "What do you sell?"),
        message("assistant", "We sell bread and cakes of all sorts."),
        message("user", "And what is fresh?"),
    ),
    (message("assistant", "The rye bread has just come out of the oven."),),
)
TOOLS = ("find_trains", "book_seat", "weather")
VALUES = {"origin": ("Bern", "Oslo", "Turin"), "goal": ("Rome", "Paris", "Ghent"), "city": ("Lima", "Quito")}
CALL = ToolCall("find_trains", {"origin": "Basel", "goal": "Milan"})
AGENT = Span(
    (
        message("user", "From Basel to Milan, please."),
        message("assistant", "", ToolCall("weather", {"city": "Basel"})),
        Message("tool", (ToolResult("sunny"),)),
    ),
    (message("assistant", "", CALL),),
)
Made = tuple[Span, dict[str, bool]] | None


def made(maker: Callable[[random.Random], Made], count: int = 200) -> list[tuple[Facts, dict[str, bool]]]:
    """What a maker makes of many seeds; both labels of everything it tells must occur."""
    found = [m for seed in range(count) if (m := maker(random.Random(seed))) is not None]
    assert len(found) > count / 4
    for key in {key for _, told in found for key in told}:
        assert {told[key] for _, told in found if key in told} == {True, False}, key
    return [(Facts(span), told) for span, told in found]


def grams(text: str, size: int) -> list[str]:
    words = text.split()
    return [" ".join(words[i : i + size]) for i in range(len(words) - size + 1)]


def has_twice(parts: list[str]) -> bool:
    return len(set(parts)) < len(parts)


def test_a_paragraph_stands_twice_where_it_says_so_and_something_is_put_in_where_not() -> None:
    for facts, told in made(lambda rng: doubles.doubled_paragraph(Facts(TALK), OTHERS, rng)):
        found = sentences(facts.reply)
        assert has_twice(found) == told["repeated_paragraph"]
        assert len(found) >= 7


def side_by_side(parts: list[str], size: int) -> bool:
    return any(parts[i : i + size] == parts[i + size : i + 2 * size] for i in range(len(parts) - 2 * size + 1))


@pytest.mark.parametrize(
    ("key", "maker", "cut", "sizes", "least"),
    [
        (
            "repeated_paragraph",
            lambda rng: doubles.doubled_paragraph(Facts(TALK), OTHERS, rng),
            sentences,
            (2, 3),
            0.45,
        ),
        ("repeated_phrase", lambda rng: doubles.doubled_phrase(Facts(TALK), OTHERS, rng), str.split, (4, 5, 6, 7), 0.3),
        ("repeated_thanks", lambda rng: repeated("", rng, ASKED, OTHERS), sentences, (1,), 0.45),
        ("repeated_fact", lambda rng: repeated("", rng, ASKED, OTHERS), sentences, (1,), 0.45),
    ],
)
def test_copies_stand_beside_their_original_and_elsewhere(
    key: str,
    maker: Callable[[random.Random], Made],
    cut: Callable[[str], list[str]],
    sizes: tuple[int, ...],
    least: float,
) -> None:
    found = [m for seed in range(2500) if (m := maker(random.Random(seed))) is not None and m[1].get(key)]
    beside = [any(side_by_side(cut(Facts(span).reply), size) for size in sizes) for span, _ in found]
    assert len(beside) > 80
    assert least < sum(beside) / len(beside) < 0.8  # chance alone: 0.3, of phrases 0


def test_a_request_is_doubled_beside_its_original_and_elsewhere() -> None:
    made_ = [doubles.doubled_request(Facts(TALK), OTHERS, random.Random(seed)) for seed in range(400)]
    asked = [sentences(Facts(m[0]).users[-1]) for m in made_ if m is not None and m[1]["user_repeats_sentence"]]
    assert all(has_twice(parts) for parts in asked)
    beside = [side_by_side(parts, 1) for parts in asked]
    assert 0.45 < sum(beside) / len(beside) < 0.9  # chance alone: 0.3


def test_a_phrase_stands_twice_where_it_says_so_and_something_is_put_in_where_not() -> None:
    for facts, told in made(lambda rng: doubles.doubled_phrase(Facts(TALK), OTHERS, rng)):
        assert has_twice(grams(facts.reply, 4)) == told["repeated_phrase"]
        assert len(facts.reply.split()) >= len(REPLY.split()) + 4


def test_a_doubled_paragraph_keeps_its_lines() -> None:
    listed = "Pack these things:\n- a warm coat\n- a map of the valley\n- two litres of water\n- bread for the day"
    found = 0
    for seed in range(200):
        made = doubles.doubled_paragraph(Facts(exchange("What to pack?", listed)), OTHERS, random.Random(seed))
        if made is None or not made[1]["repeated_paragraph"]:
            continue
        found += 1
        text = Facts(made[0]).reply
        lines = [line for line in text.split("\n") if line]
        assert has_twice(lines)
        assert set(lines) == set(listed.split("\n"))
    assert found > 10


def test_nothing_is_made_of_a_reply_that_has_it_twice_by_itself() -> None:
    """A label would say that it has not."""
    paragraph = exchange("Go on.", f"{REPLY} {OTHERS[0]} {REPLY}")
    phrase = exchange("Go on.", f"{REPLY} In spring it rains here Every Day. {REPLY.split('. ')[2]} every day.")
    for seed in range(100):
        assert doubles.doubled_paragraph(Facts(paragraph), OTHERS, random.Random(seed)) is None
        assert doubles.doubled_phrase(Facts(phrase), OTHERS, random.Random(seed)) is None


def test_a_phrase_from_elsewhere_shares_no_four_words_with_the_reply() -> None:
    near = ("Everybody knows that the old bridge has three arches of granite and of brick, as many bridges do.",)
    for facts, told in made(lambda rng: doubles.doubled_phrase(Facts(TALK), near, rng)):
        assert has_twice(grams(facts.reply.lower(), 4)) == told["repeated_phrase"]


def test_a_sentence_of_the_user_stands_twice_where_it_says_so() -> None:
    for facts, told in made(lambda rng: doubles.doubled_request(Facts(TALK), ASKED, rng)):
        found = sentences(facts.users[-1])
        assert len(found) == 3
        assert has_twice(found) == told["user_repeats_sentence"]
        assert facts.reply == REPLY


def test_an_answer_of_before_is_one() -> None:
    for facts, told in made(lambda rng: doubles.repeated_answer(Facts(TURNS), OTHERS, rng)):
        assert (facts.reply in facts.earlier) == told["repeats_old_answer"]


def test_a_reply_that_repeats_an_answer_by_itself_is_told_so() -> None:
    said = Facts(TURNS).earlier[0]
    span = Span(TURNS.input, (message("assistant", f" {said}\n"),))
    told = [doubles.repeated_answer(Facts(span), OTHERS, random.Random(seed)) for seed in range(60)]
    replies = {(Facts(each[0]).reply.strip() == said, each[1]["repeats_old_answer"]) for each in told if each}
    assert replies == {(True, True), (False, False)}


def test_nothing_is_made_of_what_has_nothing_to_repeat() -> None:
    bare = Facts(exchange("Hi.", "Yes."))
    for seed in range(50):
        rng = random.Random(seed)
        assert doubles.doubled_paragraph(bare, OTHERS, rng) is None
        assert doubles.doubled_phrase(bare, OTHERS, rng) is None
        assert doubles.repeated_answer(bare, OTHERS, rng) is None
        assert casing.cased(bare, rng) is None
        assert calls.paired_calls(bare, TOOLS, VALUES, rng) is None
        assert calls.call_of_before(bare, rng) is None
        assert calls.value_twice(bare, VALUES, rng) is None


def test_the_case_of_letters_is_as_told() -> None:
    for facts, told in made(lambda rng: casing.cased(Facts(TALK), rng), 300):
        letters = [c for c in facts.reply if c.isalpha()]
        words = re.findall(r"(?<![\w'’])[A-Za-z]\w*", facts.reply)
        assert told["no_capitals"] == all(c.islower() for c in letters)
        assert told["has_capitals"] != told["no_capitals"]
        assert told["louder_than_user"] == (told["has_capitals"] and told["user_no_capitals"])
        assert told["all_capitals"] == all(c.isupper() for c in letters)
        assert told["title_case"] == (all(w[0].isupper() for w in words) and not told["all_capitals"])
        assert told["small_start"] == letters[0].islower()
        assert told["user_no_capitals"] == (facts.users[0] == facts.users[0].lower())
        assert facts.reply.lower() == REPLY.lower()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("don't stop", "Don't Stop"),
        ("a well-known o’clock", "A Well-Known O’clock"),
        ("ÉTÉ x", "ÉTÉ X"),
        ("", ""),
        ("été à paris", "Été À Paris"),
        ("'so be it', they said", "'So Be It', They Said"),
        ("a_b and 2nd", "A_B And 2nd"),
    ],
)
def test_titles(text: str, expected: str) -> None:
    assert casing.title(text) == expected


def test_calls_side_by_side_differ_in_tool_or_value_and_never_in_neither() -> None:
    for facts, told in made(lambda rng: calls.paired_calls(Facts(AGENT), TOOLS, VALUES, rng)):
        shown = facts.output_calls
        assert CALL in shown
        names = {call.name for call in shown}
        assert told["two_tools"] == (len(names) == 2)
        assert told["two_values"] == (len(shown) == 2 and len(names) == 1)
        assert len({calls.shown(call) for call in shown}) == len(shown)


def test_a_call_of_before_is_one() -> None:
    for facts, told in made(lambda rng: calls.call_of_before(Facts(AGENT), rng)):
        [last] = facts.output_calls
        assert told["earlier_call"] == (last.name == "weather")


def test_the_order_of_arguments_makes_no_other_call() -> None:
    turned = ToolCall("find_trains", {"goal": "Milan", "origin": "Basel"})
    span = Span(
        (message("user", "From Basel to Milan."), message("assistant", "", turned)), (message("assistant", "", CALL),)
    )
    for seed in range(20):
        found = calls.call_of_before(Facts(span), random.Random(seed))
        assert found is not None
        assert found[1] == {"earlier_call": True}
    assert calls.shown(CALL) != calls.shown(ToolCall("find_trains", {"origin": "Milan", "goal": "Basel"}))


def test_two_arguments_are_alike_where_it_says_so() -> None:
    for facts, told in made(lambda rng: calls.value_twice(Facts(AGENT), VALUES, rng)):
        [last] = facts.output_calls
        assert has_twice(list(last.arguments.values())) == told["same_value_twice"]
        assert last != CALL


def test_questions_and_points_come_from_the_texts_given() -> None:
    found = [Facts(repeated("", random.Random(seed), ASKED, OTHERS)[0]).reply for seed in range(200)]
    assert any(question in reply for question in ASKED for reply in found)
    assert any("- Knead the dough for ten minutes" in reply for reply in found)
    for seed in range(200):
        span, told = repeated("", random.Random(seed), ASKED, OTHERS)
        if set(told) == {"repeated_question"}:
            assert has_twice(sentences(Facts(span).reply)) == told["repeated_question"]


def test_an_offer_twice_that_is_a_question_is_not_told_as_no_question_twice() -> None:
    offer, found = "Shall I look that up?", 0
    for seed in range(3000):
        span, told = repeated("", random.Random(seed), ASKED, OTHERS)
        if Facts(span).reply.count(offer) == 2 and "repeated_question" in told:
            found += 1
            assert told["repeated_question"] is None
            assert told["repeated_offer"]
    assert found


def test_points_of_indented_lines_have_words() -> None:
    code = ("def f(x):\n" + " " * 12 + "return x + 1 if x else 0\n" + " " * 12 + "y = x and not x or 3",) * 3
    texts = [Facts(repeated("", random.Random(seed), ASKED, code)[0]).reply for seed in range(300)]
    assert any("- return x + 1" in text for text in texts)
    assert not any(line.strip() == "-" for text in texts for line in text.split("\n"))


def test_a_date_that_is_wrong_leaves_the_month_untold_and_the_other_way_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was said of one may be wrong of the other as well; of a color it is not."""
    three = {"wrong_date", "wrong_month", "wrong_color"}
    monkeypatch.setattr(echoes, "ECHOES", [echo for echo in echoes.ECHOES if echo.behavior.key in three])
    found = set()
    for seed in range(300):
        _, told = echoes.echoed("", random.Random(seed))
        found |= {(wrong, other) for wrong in told for other in told if told[wrong] and other != wrong}
    assert found == {
        ("wrong_date", "wrong_color"), ("wrong_month", "wrong_color"),
        ("wrong_color", "wrong_date"), ("wrong_color", "wrong_month"),
    }  # fmt: skip
