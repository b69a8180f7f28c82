"""What a reply has twice: a question, a point of a list, a thank-you, a link, a number, a name, an opening word."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from mainspring.text.span import Span
from mainspring.train.content.facts import sentences
from mainspring.train.content.kinds import NAMES, WORDS
from mainspring.train.content.phrasing import Behavior
from mainspring.train.sources import exchange

TWICE = (
    "the reply has the same {n} twice",
    "the assistant gives one {n} two times over",
    "a {n} occurs a second time in the answer",
    "the {n} in the reply is needlessly repeated",
    "the model comes up with the identical {n} again",
    "the bot's message holds a duplicate {n}",
    "two {n}s in the response are one and the same",
    "the agent doubles a {n}",
    "there is a {n} that stands in the message more than once",
)
BESIDE = 0.4  # how often at least a copy stands right behind its original
UNSEEN = "the response contains some {n} in duplicate"


@dataclass(frozen=True)
class Twice:
    key: str
    noun: str
    parts: tuple[str, ...]  # any two differ; slots {word} and {name}


TWICES = (
    Twice("repeated_question", "question", (
        "What is your budget?", "Where do you live?", "How many people will come?", "When do you need it?",
        "Which color do you like?", "Who referred you to us?", "Have you tried to restart it?", "Do you own a {word}?",
    )),
    Twice("repeated_point", "point of a list", (
        "- check the cable", "- write to {name}", "- buy some flour", "- call the office", "- water the plants",
        "- update the driver", "- save the file", "- ask for the {word} form", "- open the window",
    )),
    Twice("repeated_thanks", "expression of thanks", (
        "Thank you for your message.", "Thanks a lot for waiting.", "I appreciate your patience.",
        "Many thanks for the details.", "I'm grateful that you told us, {name}.", "Thank you for your trust.",
    )),
    Twice("repeated_link", "link", (
        "See www.{word}.com/help.", "More at www.{word}.org.", "Read www.{name}.net/start.", "Go to www.{word}{name}.io.",
        "The form is at www.{name}.com/form.", "Details: www.{word}.info/{name}.",
    )),
    Twice("repeated_advice", "piece of advice", (
        "You should drink more water.", "Try to sleep eight hours.", "Take a walk every day.", "Keep a diary.",
        "Talk to {name} about it.", "Eat less sugar.", "Turn off the phone at night.", "Read about the {word} method.",
    )),
    Twice("repeated_offer", "offer of help", (
        "I can book it for you.", "Shall I look that up?", "I could write to {name} for you.", "I can draft a letter.",
        "Let me compare the prices for you.", "I can set a reminder.", "I could explain the {word} plan.",
    )),
    Twice("repeated_apology", "apology", (
        "I'm sorry about that.", "I apologize for the delay.", "Please excuse the mix-up with {name}.",
        "I regret the mistake.", "Sorry that you had to wait.", "My apologies for the {word} order.",
    )),
    Twice("repeated_fact", "piece of trivia", (
        "Honey does not spoil.", "Octopuses have three hearts.", "Venus turns backwards.", "Bananas are berries.",
        "The {word} festival began in 1962.", "{name} invented the stapler.", "Sharks are older than trees.",
    )),
)  # fmt: skip
BEHAVIORS = {
    t.key: Behavior(t.key, tuple(f.format(n=t.noun) for f in TWICE), (UNSEEN.format(n=t.noun),), ("text",))
    for t in TWICES
}


def repeated(
    reply: str, rng: random.Random, questions: Sequence[str] = (), replies: Sequence[str] = ()
) -> tuple[Span, dict[str, bool | None]]:
    """Two or three sorts of parts, one of them perhaps with one part twice, spread over a reply.

    Questions and points are taken from the given texts more often than from the few of `TWICES`, which are soon known.
    """
    slots = {"word": rng.choice(WORDS), "name": rng.choice(NAMES)}
    chosen = rng.sample(TWICES, rng.randint(1, 3))
    doubled = chosen[0] if rng.random() < 0.5 else None
    parts, first = [], ""  # the one that comes again
    for sort in chosen:
        count = rng.randint(2, 3)
        own = _found(sort, questions, replies, count, rng) if rng.random() < 0.8 else []
        if len(own) < count:
            own = [part.format(**slots) for part in rng.sample(sort.parts, count)]
        parts += own
        first = own[0] if sort is doubled else first
    rng.shuffle(parts)
    if first:
        parts.insert(parts.index(first) + 1 if rng.random() < BESIDE else rng.randint(0, len(parts)), first)
    gap = "\n" if any(part.startswith("-") for part in parts) else rng.choice((" ", "\n"))
    text = gap.join(parts if rng.random() < 0.5 or not reply else [reply, *parts])
    told: dict[str, bool | None] = {sort.key: sort is doubled for sort in chosen}
    questions_said = [s for s in sentences(text) if s.endswith("?")]
    if not told.get("repeated_question", True) and len(set(questions_said)) < len(questions_said):
        told["repeated_question"] = None  # an offer, say, that is a question, too
    return exchange(rng.choice(("Can you help me?", "Please go on.", "What do you say?", "Hello.")), text), told


def _found(sort: Twice, questions: Sequence[str], replies: Sequence[str], count: int, rng: random.Random) -> list[str]:
    """Parts of a sort in other texts, all different; empty where that sort is not to be had there."""
    if sort.key == "repeated_question" and questions:
        asked = [s for text in rng.sample(questions, min(12, len(questions))) for s in sentences(text)]
        found = [s for s in asked if s.endswith("?") and 12 < len(s) < 120]
    elif sort.key == "repeated_point" and replies:
        said = [s.split() for text in rng.sample(replies, min(6, len(replies))) for s in sentences(text)]
        found = [f"- {' '.join(words[:6]).strip('-*•.,:; ')}" for words in said if len(words) > 4]
    else:
        return []
    return list(dict.fromkeys(found))[:count]
