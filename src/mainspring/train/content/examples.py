"""Labelled spans as they leave the makers: a span, where it comes from, and its rows.

A row is one behavior with its label. Which split a row falls into depends on the text and on the behavior, see
`dataset`. Chance comes from `rng_for(text_id, ...)`, so that an example depends on nothing but its own text.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from mainspring.text.span import Span
from mainspring.train.content.facts import Facts, beginning
from mainspring.train.content.phrasing import Behavior
from mainspring.train.content.rules import RULES, WORD, argument_behavior, call_behaviors, word_behaviors
from mainspring.train.sources import Conversation, message

PRESENT, ABSENT, UNTOLD = 0, 1, 2
VOCABULARY = 3000  # words that are asked for


@dataclass(frozen=True)
class Row:
    """`group` is what the marks are reported by; `confidence` the probability that the label is right."""

    behavior: Behavior
    label: int
    group: str
    confidence: float = 1.0


@dataclass(frozen=True)
class Example:
    span: Span
    text_id: str
    source: str
    rows: tuple[Row, ...]


def rng_for(*parts: object) -> random.Random:
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))


def label(present: bool) -> int:
    return PRESENT if present else ABSENT


def row(behavior: Behavior, present: bool, facts: Facts, group: str, confidence: float = 1.0) -> Row:
    """`not_observable` where the span lacks what the behavior needs."""
    if not set(behavior.needs) <= facts.shows:
        return Row(behavior, UNTOLD, group)
    return Row(behavior, label(present), group, confidence)


def rule_rows(facts: Facts, count: int | None, rng: random.Random) -> list[Row]:
    """All rules, or `count` of them by chance."""
    chosen = RULES if count is None else rng.sample(RULES, count)
    return [row(r.behavior, r.holds(facts), facts, "rules") for r in chosen]


def rule_examples(found: Iterable[Conversation]) -> Iterator[Example]:
    """Every conversation under every rule; some lose their output or their tools, so that less can be told."""
    talk = list(found)
    vocabulary = _vocabulary(talk)
    names: list[str] = []
    values: dict[str, list[str]] = {}
    for conversation in talk:
        rng = rng_for("rules", conversation.text_id, conversation.source)
        span = _poorer(conversation.span, rng)
        facts = Facts(span)
        rows = rule_rows(facts, None, rng)
        others = rng.sample(names, min(2, len(names)))
        for behavior, present in call_behaviors(facts, others):
            rows.append(row(behavior, present, facts, "rules"))
        rows += _denied_arguments(facts, values, rng)
        for behavior, present in word_behaviors(facts, vocabulary, rng):
            rows.append(row(behavior, present, facts, "rules"))
        for call in facts.calls:
            names += [call.name] if call.name not in names else []
            for key, value in call.arguments.items() if isinstance(call.arguments, dict) else []:
                if isinstance(value, str) and len(value) < 40:
                    values.setdefault(key, []).append(value)
        yield Example(span, conversation.text_id, conversation.source, tuple(rows))


def shortened(conversation: Conversation) -> Conversation | None:
    """The conversation with the first one to three sentences of its reply: people's chats are short, most of the sources'
    replies are not. None where that would leave out little, and where no whole text is left."""
    facts = Facts(conversation.span)
    kept = rng_for("shortened", conversation.text_id, conversation.source).randint(1, 3)
    reply = beginning(facts.reply, kept)
    if reply is None or len(facts.sentences) < kept + 2 or facts.output_calls:
        return None
    span = msgspec.structs.replace(conversation.span, output=(message("assistant", reply),))
    return replace(conversation, span=span, marks=())  # what marks say is true of the whole reply


def _vocabulary(talk: Sequence[Conversation]) -> list[str]:
    """Words neither rare nor everywhere, by the number of texts they stand in."""
    texts = Counter(word for c in talk for word in set(WORD.findall(Facts(c.span).reply.lower())))
    usual = sorted((-count, word) for word, count in texts.items() if 3 <= count < 0.05 * len(talk))
    return [word for _, word in usual[:VOCABULARY]]


def _poorer(span: Span, rng: random.Random) -> Span:
    chance = rng.random()
    if chance < 0.04:
        return Span(span.input, (), span.tools)
    if chance < 0.16 and span.input and span.input[0].role != "system":
        return Span((message("system", rng.choice(SYSTEMS)), *span.input), span.output, span.tools)
    return span


SYSTEMS = (
    "You are a helpful assistant.",
    "You are a friendly expert who answers in plain English.",
    "Answer briefly. Never give medical or legal advice.",
    "You work for a shop. Only talk about orders, deliveries and returns. Do not discuss politics.",
    "Today is a busy day at the help desk. Be quick and polite.",
    "You are a careful writer. Think before you answer, keep to the facts that you know well, and give the reader a "
    "clear structure: an opening line, the main points one after another, and a closing line that sums it all up in "
    "words that everybody understands, whatever they knew about the matter before they came to you with a question.",
    "You are the assistant of a bank. You must not reveal account numbers, you must not give advice on investments, and "
    "you should not promise anything about loans. Where a customer is upset, stay calm, say that you understand, and "
    "offer to connect them with a colleague. All of your replies are in English, whatever language they write to you.",
    "Act as a teacher.",
    "Use the tools where you can.",
    "Don't use emoji.",
)


def _denied_arguments(facts: Facts, values: dict[str, list[str]], rng: random.Random) -> list[Row]:
    """The same arguments with values they did not have."""
    rows = []
    for behavior, present in call_behaviors(facts, []):
        kind, *rest = behavior.key.split(":", 3)
        if kind != "tool_argument" or not present or len(rest) < 3:
            continue
        name, key, _ = rest
        other = rng.choice(values.get(key) or [""])
        used = {str(v) for call in facts.calls if isinstance(call.arguments, dict) for v in call.arguments.values()}
        if other and other not in used:
            rows.append(Row(argument_behavior(name, key, other), ABSENT, "rules"))
    return rows
