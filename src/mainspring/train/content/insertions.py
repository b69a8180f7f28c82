"""A sentence of a known kind put into a real reply: the edited span shows the kind, the untouched one does not.

Near misses are made the same way: another kind's sentence, the same sentence in the user's turn, a value that the input
holds already.
"""

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

import msgspec

from mainspring.text.span import Message, Span, Text
from mainspring.train.content import kinds as k
from mainspring.train.content import quotes
from mainspring.train.content.examples import ABSENT, PRESENT, UNTOLD, Example, Row, rng_for, rule_rows
from mainspring.train.content.facts import Facts
from mainspring.train.content.phrasing import Behavior
from mainspring.train.content.slots import values
from mainspring.train.sources import Conversation, message

SHORT_SHARE = 0.35  # of edits in a short exchange, where there is less to look through
HELD_SHARE = 0.4  # of edits of held-out texts that show a held-out kind
SHORT = ("Can you help me?", "What do you say?", "Hello.", "I have a question about this.", "Please go on.", "And now?")
BY_QUOTE = 0.4  # how often a row of a kind is also asked about by what its sentences say
GIVEN = ("Here is what I have: {}", "I found this: {}", "For your records: {}", "My notes say {}")


def behavior_of(kind: k.Kind) -> Behavior:
    return Behavior(kind.key, kind.clauses, (kind.test,), ("text",))


@cache
def like(kind: k.Kind) -> Behavior:
    """Asked about in training alone: held-out texts are asked about in the words that users have."""
    rng = rng_for("like", kind.key)
    return quotes.like(kind.key, [text.format(**values(rng)) for text in kind.sentences])


def group_of(key: str) -> str:
    return "edits_unseen" if key in k.TEST_KINDS else "edits_calibration" if key in k.CALIBRATION_KINDS else "edits"


def insertion_examples(
    found: Iterable[Conversation], rounds: Callable[[str], int], held: Callable[[str], Sequence[k.Kind]]
) -> Iterator[Example]:
    """`rounds` says how many edits a text gets, `held` which held-out kinds its split may show."""
    for conversation in found:
        facts = Facts(conversation.span)
        if not facts.reply or facts.output_calls or len(facts.reply) > 3500:
            continue
        for number in range(rounds(conversation.text_id)):
            rng = rng_for("insert", conversation.text_id, conversation.source, number)
            yield _edited(conversation, held(conversation.text_id), rng)
        rng = rng_for("untouched", conversation.text_id, conversation.source)
        rows = _absent(facts, facts.reply, [], held(conversation.text_id), rng, 9)
        yield Example(conversation.span, conversation.text_id, conversation.source, tuple(rows))


def _edited(conversation: Conversation, held: Sequence[k.Kind], rng: random.Random) -> Example:
    kind, second = rng.sample(k.TRAIN_KINDS, 2)
    if held and rng.random() < HELD_SHARE:
        kind = rng.choice(held)
    sentence = rng.choice(kind.sentences).format(**values(rng))
    chance, span = rng.random(), conversation.span
    if rng.random() < SHORT_SHARE:
        opening = Facts(span).reply.split("\n")[0][:160]
        span = Span((message("user", rng.choice(SHORT)),), (message("assistant", opening),))
    original = Facts(span).reply
    if chance < 0.12:  # the user says it, the assistant does not
        span = _with_user(span, sentence)
        told = {} if kind.natural and kind.natural.search(original) else {kind.key: ABSENT}
    elif chance < 0.24 and kind.made_up:  # the value is known from the input
        span = _with_user(_with_reply(span, rng, sentence), rng.choice(GIVEN).format(sentence))
        told = {kind.key: ABSENT}
    else:
        span = _with_reply(span, rng, sentence)
        told = {kind.key: PRESENT}
        if rng.random() < 0.25 and not k.close(kind, second):
            span = _with_reply(span, rng, rng.choice(second.sentences).format(**values(rng)))
            told[second.key] = PRESENT
    rows = [Row(behavior_of(k.BY_KEY[key]), value, group_of(key)) for key, value in told.items()]
    rows += _absent(Facts(span), original, [kind, second], held, rng, 5)
    if not held:
        rows += [Row(like(k.BY_KEY[row.behavior.key]), row.label, "edits") for row in rows if rng.random() < BY_QUOTE]
    if rng.random() < 0.03:
        span, rows = Span(span.input), [Row(r.behavior, UNTOLD, r.group) for r in rows]
    rows += rule_rows(Facts(span), 3, rng)
    return Example(span, conversation.text_id, conversation.source, tuple(rows))


def _absent(
    facts: Facts, original: str, shown: Sequence[k.Kind], held: Sequence[k.Kind], rng: random.Random, count: int
) -> list[Row]:
    """Kinds that are surely not there: not close to one that may be, and not in the untouched words."""
    asked = [*rng.sample(held, min(count // 2 + 1, len(held))), *rng.sample(k.TRAIN_KINDS, 2 * count)]
    words = original + "\n" + facts.reply
    sure = [
        kind
        for kind in asked
        if not any(kind is other or k.close(kind, other) for other in shown)
        and not (kind.natural and kind.natural.search(words))
    ]
    return [Row(behavior_of(kind), ABSENT, group_of(kind.key)) for kind in sure[:count]]


def _with_reply(span: Span, rng: random.Random, sentence: str) -> Span:
    reply = span.output[0].text
    return msgspec.structs.replace(span, output=(_replace_text(span.output[0], place(reply, sentence, rng)),))


def _with_user(span: Span, sentence: str) -> Span:
    at = max((i for i, m in enumerate(span.input) if m.role == "user"), default=None)
    if at is None:
        return msgspec.structs.replace(span, input=(message("user", sentence), *span.input))
    changed = _replace_text(span.input[at], f"{span.input[at].text}\n{sentence}")
    return msgspec.structs.replace(span, input=(*span.input[:at], changed, *span.input[at + 1 :]))


def _replace_text(old: Message, text: str) -> Message:
    others = tuple(part for part in old.parts if not isinstance(part, Text))
    return msgspec.structs.replace(old, parts=(Text(text), *others))


def place(reply: str, sentence: str, rng: random.Random) -> str:
    """Before the reply, after it, or behind one of its sentences."""
    chance = rng.random()
    if chance < 0.2:
        return f"{sentence} {reply}"
    ends = [m.end() for m in re.finditer(r"[.!?](?=\s)", reply)]
    if chance < 0.55 and ends:
        at = rng.choice(ends)
        return f"{reply[:at]} {sentence}{reply[at:]}"
    return reply.rstrip() + rng.choice((" ", "\n\n", "\n")) + sentence
