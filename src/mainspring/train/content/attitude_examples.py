"""Statements of made-up traits -> short spans, each with definitions that suit it and as many that don't.

Whether a row says present can be told neither from the statement nor from the definition alone: every stance is spoken
of and asked about as often as its contrary, and what is asked in one row with "present" is asked in another with
"absent". Definitions deny at times, so that not even agreement of the words tells.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from mainspring.train.content import attitudes as t
from mainspring.train.content import forms
from mainspring.train.content import persona as p
from mainspring.train.content.attitudes import Stance
from mainspring.train.content.examples import ABSENT, PRESENT, Example, Row, rng_for
from mainspring.train.content.forms import ITSELF, MY, SURE, Told, frames
from mainspring.train.content.phrasing import Behavior
from mainspring.train.content.quotes import DENIED, SAID, third_person
from mainspring.train.sources import Conversation
from mainspring.train.splits import CALIBRATION_SHARE, TEST_SHARE, TRAIN, text_split

COUNT = 60_000  # examples to train on
MOST_OF_A_STANCE, HELD_OF_AN_ATTITUDE = 18, 500
WORDINGS, DENIALS, QUOTED = 4, 2, 0.4  # of a behavior, of its denial; how often one of them is a quote
DENIED_SHARE = 0.2  # of statements that are asked about by a denial, right or wrong
NEARLY_SURE = 0.95
TRAINED, UNSEEN = "attitudes", "attitudes_unseen"  # groups

_FIRST_PERSON = re.compile(r"\b(?:I|me|mine|myself)\b")


@cache
def asked(stance: Stance) -> Behavior:
    """Of the assistant; those of held-out topics have held-out definitions alone."""
    rng = rng_for("asked", stance.key)
    held = stance.topic.held
    train = [_worded(stance, rng, frames(user=False)) for _ in range(WORDINGS)]
    if not held and rng.random() < QUOTED:
        [quote] = t.said(stance, rng, 1)
        train[0] = rng.choice(SAID).format(quote.rstrip("."))
    test = [_worded(stance, rng, p.TEST_FRAMES) for _ in range(WORDINGS)] if held else []
    return _behavior(stance.key, train, test)


@cache
def denied(stance: Stance) -> Behavior:
    """Present where the contrary is said."""
    rng = rng_for("denied", stance.key)
    texts = [_worded(stance, rng, DENIED, free=False) for _ in range(DENIALS)]
    return _behavior(f"{stance.key}/denied", texts, texts if stance.topic.held else [])


@cache
def asked_of_user(stance: Stance) -> Behavior | None:
    """None where what it is about can't be said of a third person by its names as they stand."""
    names = tuple(tuple(name for name in own if not _FIRST_PERSON.search(name)) for own in stance.names)
    if not all(names):
        return None
    rng = rng_for("asked of the user", stance.key)
    held = stance.topic.held
    templates = [text for text in _definitions(stance, free=False) if not ITSELF.search(text)]
    phrases = [
        MY.sub("their", t.filled(rng.choice(templates), tuple(rng.choice(own) for own in names)))
        for _ in range(DENIALS)
    ]
    around = p.USER_TEST_FRAMES if held else frames(user=True)
    texts = [rng.choice(around).format(phrase) for phrase in phrases]
    return _behavior(f"{stance.key}/user", texts, texts if held else [], needs="user")


def _behavior(key: str, train: list[str], test: list[str], *, needs: str = "reply") -> Behavior:
    return Behavior(key, tuple(dict.fromkeys(train)), tuple(dict.fromkeys(test)), (needs,), whole=True)


def _definitions(stance: Stance, *, free: bool) -> list[str]:
    templates = t.kept(stance.attitude.defined[stance.side], held=stance.topic.held)
    return [text for text in templates if free or not text.startswith("=")]


def _worded(stance: Stance, rng: random.Random, around: Sequence[str], *, free: bool = True) -> str:
    template = t.mixed(tuple(_definitions(stance, free=free)), rng)[0]
    names = tuple(map(third_person, t.one(stance.names, rng)))
    if template.startswith("="):
        return t.filled(template[1:], names)
    return rng.choice(around).format(t.filled(template, names))


def attitude_examples(
    talk: Sequence[Conversation], kept: Callable[[str], bool] = lambda _: True, *, count: int = COUNT
) -> Iterator[Example]:
    """About `count` to train on, and held-out ones; `talk` are short conversations that longer forms borrow turns from.

    What is alike comes one after another: it is stored in less space.
    """
    for stance, many in _shares(count):
        texts = iter(t.said(stance, rng_for("said", stance.key), many))
        for number in range(many):
            text_id = f"{stance.key}/{number}"
            if (text_split(text_id) == TRAIN) == stance.topic.held or not kept(text_id):
                continue
            if (text := next(texts, None)) is None:
                break
            rng = rng_for("attitudes", text_id)
            form = rng.choices(FORMS, FORM_SHARES)[0]
            span, rows = form(Held(stance), text, rng, talk)
            group = UNSEEN if stance.topic.held else TRAINED
            yield Example(span, text_id, "attitudes", tuple(Row(b, side, group, sure) for b, side, sure in rows))


def _shares(count: int) -> Iterator[tuple[Stance, int]]:
    """Half of the examples go by stance, half by attitude; of held-out ones every attitude has as many."""
    found = list(t.stances())
    sizes = Counter((stance.attitude.key, stance.topic.held) for stance in found)
    wanted = count / 2 / (1 - TEST_SHARE - CALIBRATION_SHARE)
    trained = sum(not stance.topic.held for stance in found)
    for stance in found:
        size = sizes[stance.attitude.key, stance.topic.held]
        many = wanted / trained + wanted / len(t.attitudes()) / size
        yield stance, max(1, round(HELD_OF_AN_ATTITUDE / size if stance.topic.held else min(MOST_OF_A_STANCE, many)))


@dataclass(frozen=True)
class Held:
    """A stance as `forms` has it said."""

    stance: Stance

    @property
    def contrary(self) -> "Held":
        return Held(self.stance.contrary)

    def asked(self) -> Behavior:
        return asked(self.stance)

    def denied(self) -> Behavior:
        return denied(self.stance)

    def asked_of_user(self) -> Behavior | None:
        return asked_of_user(self.stance)

    def said(self, rng: random.Random) -> str:
        [text] = t.said(self.stance, rng, 1)
        return text

    def other(self, rng: random.Random) -> "Held":
        return Held(t.other(self.stance, rng))

    def rows(self, rng: random.Random) -> list[Told]:
        """Its own definition, one that is wrong in one of three ways, and as many denials that are right as wrong ones."""
        rows = [(self.asked(), PRESENT, SURE), self._wrong(rng)]
        if rng.random() < DENIED_SHARE:
            rows.append((self.contrary.denied(), PRESENT, SURE))
        if rng.random() < DENIED_SHARE:
            wrong = self if rng.random() < 0.65 else self.other(rng).contrary
            rows.append((wrong.denied(), ABSENT, SURE))
        return rows

    def _wrong(self, rng: random.Random) -> Told:
        chance, unsaid = rng.random(), t.unsaid(self.stance)
        if chance < 0.4:
            return self.contrary.asked(), ABSENT, SURE
        if chance < 0.5 and unsaid:
            return asked(rng.choice(unsaid)), ABSENT, NEARLY_SURE
        found = self.other(rng)
        return (found.contrary if rng.random() < 0.2 else found).asked(), ABSENT, SURE


FORMS = (forms.plain, forms.within, forms.two, forms.question, forms.user_says)
FORM_SHARES = (0.7, 0.08, 0.1, 0.06, 0.06)
