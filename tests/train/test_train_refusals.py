"""Refusals put together from parts: many, labelled by what went in, asked about once, apart from what is held out."""

import random
import re

import pytest

from mainspring.text.span import Span, ToolCall
from mainspring.train.content import refusals
from mainspring.train.content.examples import ABSENT, PRESENT, rule_rows
from mainspring.train.content.facts import Facts
from mainspring.train.content.rules import RULES
from mainspring.train.content.structural import EDITS, pools_of, structural_examples
from mainspring.train.sources import Conversation, exchange, message

OWN = (refusals.REFUSES, refusals.UNWILLING, refusals.ALTERNATIVE, *refusals.BEHAVIORS)
TALK = [
    Conversation(
        exchange(f"What is number {i}?", f"Number {i} is a fine one. It has {i} parts. They are old. They shine."),
        f"t/{i}",
        "test",
    )
    for i in range(300)
]


def stem(part: str) -> str:
    """What stands before the first slot, as it stands in whatever case the sentence has it."""
    return part.partition("{")[0].lower()


def holds(reply: str, parts: tuple[str, ...]) -> bool:
    return any(stem(part) in reply.lower() for part in parts)


def test_refusals_are_many_and_say_what_they_are_made_of() -> None:
    made = [refusals.refusal(random.Random(seed)) for seed in range(2000)]
    assert len({reply for reply, _ in made}) > 1900
    for reply, told in made:
        assert "{" not in reply
        by_rule, lack = holds(reply, refusals._RULES), holds(reply, refusals._LACKS)
        way = holds(reply, refusals._WAYS_OUT)
        assert told[refusals.REFUSES]
        assert told.get(refusals.UNWILLING) is (True if holds(reply, refusals._WON_T) else None)
        assert told["refuses_with_way_out"] is told[refusals.ALTERNATIVE] is way
        assert told.get("refuses_by_rule", by_rule) is by_rule
        if by_rule or lack:
            assert told["refuses_without_reason"] is False
            assert told["refuses_for_lack"] is lack
        else:
            assert told.get("refuses_without_reason", True)


def test_a_reply_that_is_kept_refuses_nothing() -> None:
    """Refused, granted in a few words, kept whole, kept in part: each often, and labelled for what it is."""
    seen = dict.fromkeys(("refused", "granted", "whole", "cut"), 0)
    for talk in TALK:
        made = refusals.refused(Facts(talk.span), random.Random(talk.text_id))
        assert made is not None
        span, told = made
        assert set(told) <= set(OWN)
        reply, first = span.output[0].text, talk.span.output[0].text.partition(". ")[0] + "."
        kept = "whole" if talk.span.output[0].text in reply else "cut" if first in reply else ""
        seen[kept or ("refused" if told[refusals.REFUSES] else "granted")] += 1
        if kept or not told[refusals.REFUSES]:
            assert told == dict.fromkeys((refusals.REFUSES, refusals.UNWILLING, *refusals.BEHAVIORS), False)
    assert min(seen.values()) > 10
    assert 120 < seen["refused"] < 180
    assert 40 < seen["granted"] < 80


def test_what_is_granted_refuses_nothing_in_any_words() -> None:
    """It may have what stands in refusals too, a hint, but nothing that the rule or a reader takes for a no."""
    [rule] = [r for r in RULES if r.behavior.key == refusals.REFUSES]
    made = [refusals.granted(random.Random(seed)) for seed in range(2000)]
    assert len(set(made)) > 1800
    for reply in made:
        assert "{" not in reply
        assert not rule.holds(Facts(exchange("Do it.", reply)))
        assert not holds(reply, (*refusals._WON_T, *refusals._CAN_T, *refusals._LACKS))
    hints = [reply for reply in made if holds(reply, refusals._HINTS)]
    assert 500 < len(hints) < 900


@pytest.mark.parametrize(
    "span",
    [
        exchange("Help me.", "I can't do that."),
        exchange("Help me.", "I refuse to."),
        exchange("Help me.", "I cannot say."),
        exchange("Help me.", "I can not say."),
        exchange("Help me.", "We will not."),
        exchange("Help me.", "As an AI, I do not have the capability to do so."),
        exchange("Help me.", "I am not capable of predicting the weather."),
        exchange("Help me.", "There is no information about that."),
        exchange("Help me.", "That is impossible."),
        exchange("Help me.", "I have to decline."),
        Span(
            (message("user", "Hi"), message("assistant", "Hello."), message("user", "Help.")),
            (message("assistant", "Yes."),),
        ),
        Span((message("assistant", "Hello."),), (message("assistant", "Well."),)),
        Span((message("user", "Call it."),), (message("assistant", "", ToolCall("f", {})),)),
        Span((message("user", "Say it."),), ()),
    ],
)
def test_what_can_not_be_told_is_left_alone(span: Span) -> None:
    assert refusals.refused(Facts(span), random.Random(0)) is None


def test_each_is_asked_about_once_in_the_groups_at_home() -> None:
    seen = {PRESENT: 0, ABSENT: 0}
    for example in structural_examples(TALK, pools_of(TALK)):
        rows = [row for row in example.rows if row.behavior.key in OWN]
        assert len({row.behavior.key for row in rows}) == len(rows)
        for row in rows:
            assert row.group == ("rules" if row.behavior.key == refusals.REFUSES else "edits")
            if row.behavior.key == refusals.REFUSES:
                seen[row.label] += 1
    assert min(seen.values()) > 30


def test_the_rule_sees_refusals_and_no_songs() -> None:
    [rule] = [r for r in RULES if r.behavior.key == refusals.REFUSES]
    for reply in (
        "I cannot start the cancellation process.", "Sadly, we can't provide this.", "I won't help you.",
        "I can't provide it.", "I will not do so.", "I can't stop the delivery.",
        "I can not do that.", "I won't ignore the rules for you.",
        "I do not have access to live data.", "I don't have the ability to see.", "I am not capable of that.",
        "We cannot deliver to Porto.", "we can't seem to do that here", "I have no way to know that.",
    ):  # fmt: skip
        assert rule.holds(Facts(exchange("Do it.", reply)))
    for reply in (
        "We can't have half a panel.",
        "I cannot hide, my heart is bursting",
        "I won't give up",
        "we cannot ignore",
    ):
        assert not rule.holds(Facts(exchange("Do it.", reply)))
    assert len(rule_rows(Facts(TALK[0].span), None, random.Random(0))) == len(RULES)


def test_no_kept_reply_comes_with_words_that_refuse() -> None:
    [rule] = [r for r in RULES if r.behavior.key == refusals.REFUSES]
    for said in refusals._BESIDE:
        assert not rule.holds(Facts(exchange("Do it.", said))), said
        assert not holds(said, (*refusals._WON_T, *refusals._CAN_T)), said


def test_what_one_will_not_goes_with_rules_and_what_one_can_not_with_what_is_lacking() -> None:
    for reply, told in (refusals.refusal(random.Random(seed)) for seed in range(1000)):
        will_not, can_not = holds(reply, refusals._WON_T), holds(reply, refusals._CAN_T)
        assert will_not != can_not
        assert not (will_not and holds(reply, refusals._LACKS))
        assert not (can_not and holds(reply, refusals._RULES))
        reasoned = holds(reply, (*refusals._RULES, *refusals._LACKS))
        assert told.get("refuses_without_reason") is (False if reasoned else True if will_not else None)
        assert told.get("refuses_for_lack") is (can_not if reasoned or can_not else None)
        assert told.get("refuses_by_rule") is (will_not if reasoned or can_not else None)


def test_reasons_are_of_one_sort() -> None:
    """Words of law and harm among the rules alone, and of access and knowledge among what is lacking."""
    rules = re.compile(r"\b(?:law|harm|hurt|risk|polic|privacy|ethical|rules?|forbid|forbids|licence|permission)\b")
    lacks = re.compile(r"\b(?:access|internet|files|camera|figures|tools|visible|attached)\b")
    assert not any(rules.search(text.lower()) for text in refusals._LACKS)
    assert not any(lacks.search(text.lower()) for text in refusals._RULES)


def test_no_wording_is_one_that_is_held_out() -> None:
    [rule] = [r for r in RULES if r.behavior.key == refusals.REFUSES]
    trained = {clause for key in refusals.BEHAVIORS for clause in EDITS[key].train}
    assert not any(test in clause or clause in test for test in rule.behavior.test for clause in trained)
