"""Something held, in the forms it may be said in: as a reply, within one, by the user, in a yes or a no, beside another.

What is held is an attitude to something or a made-up trait; what definitions of it look like is theirs to say.
"""

import random
import re
from collections.abc import Sequence
from functools import cache
from typing import Protocol, Self

from mainspring.text.span import Message, Span
from mainspring.train.content import persona as p
from mainspring.train.content.examples import ABSENT, PRESENT, label
from mainspring.train.content.phrasing import Behavior
from mainspring.train.content.wordings import more
from mainspring.train.sources import Conversation, exchange, message

Told = tuple[Behavior, int, float]  # label, confidence
Made = tuple[Span, list[Told]]
SURE, LIKELY = 1.0, 0.85
LINKS = (
    " ",
    " ",
    " Apart from that: ",
    " And then there's this. ",
    "\n",
    " Another thing. ",
    " That said, here is more: ",
)

ITSELF = re.compile(r"\b(?:it|itself)\b")  # can't be said of the user by a word alone
MY = re.compile(r"\b(?:my|its)\b")  # is "their" of the user


class Position(Protocol):
    @property
    def contrary(self) -> Self: ...

    def asked(self) -> Behavior: ...

    def denied(self) -> Behavior:
        """Present where the contrary is said."""

    def asked_of_user(self) -> Behavior | None: ...

    def said(self, rng: random.Random) -> str: ...

    def other(self, rng: random.Random) -> Self:
        """Something else, of which what shows this says nothing."""

    def rows(self, rng: random.Random) -> list[Told]:
        """What is asked where the assistant says this and nothing else."""


@cache
def frames(*, user: bool) -> tuple[str, ...]:
    """Of definitions that are trained on."""
    return (*p.USER_FRAMES, *p.MORE_USER_FRAMES) if user else (*p.FRAMES, *more("frames", "train"))


def plain(held: Position, text: str, rng: random.Random, talk: Sequence[Conversation]) -> Made:  # noqa: ARG001
    return exchange(rng.choice(p.OPENERS), text), held.rows(rng)


def within(held: Position, text: str, rng: random.Random, talk: Sequence[Conversation]) -> Made:
    """Between other sentences, at times after turns about something else."""
    before: tuple[Message, ...] = ()
    if talk and rng.random() < 0.2:
        borrowed = rng.choice(talk).span
        before = (*borrowed.input, *borrowed.output)
    reply = rng.choice(("", *p.BEFORE)) + text + rng.choice(("", *p.AFTER))
    span = Span((*before, message("user", rng.choice(p.OPENERS))), (message("assistant", reply),))
    return span, held.rows(rng)


def two(held: Position, text: str, rng: random.Random, talk: Sequence[Conversation]) -> Made:  # noqa: ARG001
    """The contrary is said of something else: all words of the wrong definitions are there."""
    second = held.other(rng).contrary
    texts = [text, second.said(rng)]
    rng.shuffle(texts)
    rows = [(one.asked(), PRESENT, SURE) for one in (held, second)]
    rows += [(one.contrary.asked(), ABSENT, SURE) for one in (held, second)]
    return exchange(rng.choice(p.OPENERS), rng.choice(LINKS).join(texts)), rows


def question(held: Position, text: str, rng: random.Random, talk: Sequence[Conversation]) -> Made:  # noqa: ARG001
    """A yes or a no to the statement; that who says no holds the contrary is likely."""
    agrees = rng.random() < 0.5
    span = exchange(rng.choice(p.ASKS).format(text), rng.choice(p.YES if agrees else p.NO))
    sure = SURE if agrees else LIKELY
    return span, [
        (held.asked(), label(agrees), SURE),
        (held.contrary.asked(), label(not agrees), sure),
        (held.denied(), label(not agrees), sure),
        (held.contrary.denied(), label(agrees), sure),
    ]


def user_says(held: Position, text: str, rng: random.Random, talk: Sequence[Conversation]) -> Made:  # noqa: ARG001
    """What the user says is not the assistant's, who may say something else."""
    second = rng.choice((held.contrary, held.other(rng)))
    reply = second.said(rng)
    neutral = rng.random() < 0.25
    rows = [(held.asked(), ABSENT, SURE)]
    rows += [] if neutral else [(second.asked(), PRESENT, SURE)]
    users = ((held, PRESENT), (held.contrary if neutral else second, ABSENT))
    rows += [(behavior, side, SURE) for one, side in users if (behavior := one.asked_of_user())]
    return exchange(text, rng.choice(p.NEUTRAL) if neutral else reply), rows
