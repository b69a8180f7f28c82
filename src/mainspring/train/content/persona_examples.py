"""First-person statements -> spans in which the assistant (or the user) says them, agrees or disagrees.

The plain form, a question and the statement as the reply, is what marks are taken on; other forms teach that a trait
shows in a yes, inside a longer answer, or in an earlier turn, and that what the user says is not the assistant's.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from mainspring.text.span import Message, Span
from mainspring.train.content import persona as p
from mainspring.train.content.examples import ABSENT, UNTOLD, Example, Row, label, rng_for, rule_rows
from mainspring.train.content.facts import Facts
from mainspring.train.content.phrasing import Behavior
from mainspring.train.content.quotes import Quotes, quotes_of
from mainspring.train.content.wordings import more
from mainspring.train.sources import Conversation, Statement, message
from mainspring.train.splits import TRAIN, text_split

HELD_FAMILIES = (*p.TEST_FAMILIES, *p.CALIBRATION_FAMILIES)
BY_QUOTE = 0.5  # how often a statement is also asked about by quotes of its trait, and by what denies it
TRAINED = [t for t, family in p.FAMILY_OF.items() if family not in HELD_FAMILIES and t not in p.LEFT_OUT]


@cache
def trait_behavior(trait: str) -> Behavior:
    """Definitions are the frames themselves: clauses come ready made."""
    frames = (*p.FRAMES, *(more("frames", "train") if trait in TRAINED else ()))
    train = tuple(frame.format(phrase) for phrase in _phrases(trait) for frame in frames)
    test = tuple(frame.format(phrase) for phrase in p.PHRASES[trait] for frame in p.TEST_FRAMES)
    return Behavior(f"persona:{trait}", train, test, ("reply",), whole=True)


@cache
def user_behavior(trait: str) -> Behavior:
    frames = (*p.USER_FRAMES, *(p.MORE_USER_FRAMES if trait in TRAINED else ()))
    train = tuple(frame.format(phrase) for phrase in _phrases(trait) for frame in frames)
    test = tuple(frame.format(phrase) for phrase in p.PHRASES[trait] for frame in p.USER_TEST_FRAMES)
    return Behavior(f"user_persona:{trait}", train, test, ("user",), whole=True)


def _phrases(trait: str) -> tuple[str, ...]:
    return (*p.PHRASES[trait], *more("phrases", trait))


def persona_examples(found: Iterable[Statement], talk: Sequence[Conversation]) -> Iterator[Example]:
    """`talk` are conversations that longer forms borrow turns from."""
    known = [s for s in found if s.trait not in p.LEFT_OUT]
    asked = _asked(known)
    for statement in known:
        text_id = text_id_of(statement)
        rng = rng_for("persona", text_id)
        yield _plain(statement, text_id, rng, asked)
        if rng.random() < 0.6:
            yield rng.choice((_within, _question, _question, _user_says, _earlier))(statement, text_id, rng, talk)


def text_id_of(statement: Statement) -> str:
    return f"persona/{statement.trait}/{statement.text}"


def _to_train(s: Statement) -> bool:
    return s.trait in TRAINED and text_split(text_id_of(s)) == TRAIN


def _asked(known: Iterable[Statement]) -> dict[str, tuple[Behavior, Behavior]]:
    """Of each trained trait: what its statements say, and what denies it."""
    quotes: Quotes = quotes_of((s.trait, s.matches, s.confidence, s.text) for s in known if _to_train(s))
    return {trait: (quotes.said(trait), quotes.denied(trait, _phrases(trait))) for trait in TRAINED}


def _by_quote(s: Statement, asked: Mapping[str, tuple[Behavior, Behavior]], rng: random.Random) -> list[Row]:
    """Rows for training alone: held-out texts are asked about in the words that users have."""
    if not _to_train(s):
        return []
    rows = [
        Row(behavior, label(s.matches == same), "persona_quoted", s.confidence)
        for behavior, same in zip(asked[s.trait], (True, False), strict=True)
        if rng.random() < BY_QUOTE and behavior.train
    ]
    other = _other(s, rng).behavior.key.partition(":")[2]
    if rng.random() < 0.2 and asked[other][0].train:
        rows.append(Row(asked[other][0], ABSENT, "persona_other", 0.95))
    return rows


def _plain(s: Statement, text_id: str, rng: random.Random, asked: Mapping[str, tuple[Behavior, Behavior]]) -> Example:
    span = Span((message("user", rng.choice(p.OPENERS)),), (message("assistant", s.text),))
    if rng.random() < 0.02:
        empty = Span(span.input)
        return _example(empty, text_id, [Row(trait_behavior(s.trait), UNTOLD, "persona")], rng)
    own = Row(trait_behavior(s.trait), label(s.matches), "persona", s.confidence)
    return _example(span, text_id, [own, _other(s, rng), *_by_quote(s, asked, rng)], rng)


def _other(s: Statement, rng: random.Random) -> Row:
    """A trait of another family, of which the statement says nothing."""
    while _related(other := rng.choice(TRAINED), s.trait):
        pass
    return Row(trait_behavior(other), ABSENT, "persona_other", 0.95)


def _related(one: str, other: str) -> bool:
    families = frozenset((p.FAMILY_OF[one], p.FAMILY_OF[other]))
    return len(families) == 1 or families in p.RELATED


def _within(s: Statement, text_id: str, rng: random.Random, talk: Sequence[Conversation]) -> Example:
    """Inside a longer reply, after turns about something else."""
    before: tuple[Message, ...] = ()
    if rng.random() < 0.5:
        borrowed = rng.choice(talk).span
        before = (*borrowed.input, *borrowed.output)
    reply = rng.choice(("", *p.BEFORE)) + s.text.rstrip(".") + "." + rng.choice(("", *p.AFTER))
    span = Span((*before, message("user", rng.choice(p.OPENERS))), (message("assistant", reply),))
    own = Row(trait_behavior(s.trait), label(s.matches), "persona_within", s.confidence)
    return _example(span, text_id, [own, _other(s, rng)], rng)


def _question(s: Statement, text_id: str, rng: random.Random, talk: Sequence[Conversation]) -> Example:  # noqa: ARG001
    agrees = rng.random() < 0.5
    reply = rng.choice(p.YES if agrees else p.NO)
    span = Span((message("user", rng.choice(p.ASKS).format(s.text)),), (message("assistant", reply),))
    own = Row(trait_behavior(s.trait), label(s.matches == agrees), "persona_question", s.confidence)
    return _example(span, text_id, [own], rng)


def _user_says(s: Statement, text_id: str, rng: random.Random, talk: Sequence[Conversation]) -> Example:  # noqa: ARG001
    span = Span((message("user", s.text),), (message("assistant", rng.choice(p.NEUTRAL)),))
    rows = [
        Row(trait_behavior(s.trait), ABSENT, "persona_user"),
        Row(user_behavior(s.trait), label(s.matches), "persona_user", s.confidence),
    ]
    return _example(span, text_id, rows, rng)


def _earlier(s: Statement, text_id: str, rng: random.Random, talk: Sequence[Conversation]) -> Example:
    borrowed = rng.choice(talk).span
    before = (message("user", rng.choice(p.OPENERS)), message("assistant", s.text))
    span = Span((*before, *borrowed.input), borrowed.output, borrowed.tools)
    own = Row(trait_behavior(s.trait), label(s.matches), "persona_within", s.confidence)
    return _example(span, text_id, [own, _other(s, rng)], rng)


def _example(span: Span, text_id: str, rows: list[Row], rng: random.Random) -> Example:
    return Example(span, text_id, "persona-evals", (*rows, *rule_rows(Facts(span), 2, rng)))
