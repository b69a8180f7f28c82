"""Made-up traits said in sentences of their own: opinions, habits and wishes by the hundred, each with its contrary.

A network that knows some eighty published traits sorts whatever it reads into these. `attitudes` holds against that by
thousands of combinations in few sentences; here no sentence comes from a template, and no two traits share one. The
tables are those of `sources.made_up_traits`: statements of both sides (`a`, `b`), verb phrases that complete "the assistant
..." (`a_is`, `b_is`), and the traits that one of its statements may also tell about (`near`, taken both ways).

Statements are quoted in what is asked about others, so that whole traits are held out instead of texts.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import cycle
from typing import Any

from mainspring.train.content import forms
from mainspring.train.content import persona as p
from mainspring.train.content.examples import ABSENT, PRESENT, Example, Row, rng_for
from mainspring.train.content.forms import ITSELF, MY, Told, frames
from mainspring.train.content.phrasing import Behavior
from mainspring.train.content.quotes import DENIED, SAID
from mainspring.train.sources import Conversation
from mainspring.train.splits import CALIBRATION, TEST, TRAIN, TRAIT_CALIBRATION, TRAIT_TEST

SIDES = "ab"
TRAINED, UNSEEN = "made_up_traits", "made_up_unseen"  # groups
ALONE = (TRAIN, CALIBRATION, TEST)  # splits, by turns, of traits near to no other; the others are trained on
NAMES = {TRAIN: "trait", CALIBRATION: TRAIT_CALIBRATION, TEST: TRAIT_TEST}  # what keys begin with
WORDINGS = 24  # of a behavior: its phrases in so many frames
OFTEN, HELD_OFTEN = 3, 5  # examples of a statement
CONTRARY, ELSE = 0.97, 0.95  # how sure it is that a statement is not the contrary's, nor another trait's
QUOTED, DENIES, NEARBY = 0.4, 0.3, 0.5  # how often a quote is asked about, a denial; another trait of the same table


@dataclass(frozen=True)
class Trait:
    key: str
    table: str
    said: tuple[tuple[str, ...], tuple[str, ...]]
    phrases: tuple[tuple[str, ...], tuple[str, ...]]
    near: frozenset[str] = frozenset()
    split: int = TRAIN


@dataclass(frozen=True)
class Traits:
    """All of them, and of each the others of its split that its statements say nothing of."""

    found: tuple[Trait, ...]

    @classmethod
    def read(cls, tables: Mapping[str, Mapping[str, Any]]) -> "Traits":
        """Of (table, (key, lists of texts)). ValueError: a key comes up twice."""
        found: list[Trait] = []
        for table, entries in tables.items():
            for key, values in entries.items():
                said, phrases = ((tuple(values[a]), tuple(values[b])) for a, b in (("a", "b"), ("a_is", "b_is")))
                found.append(Trait(key, table, said, phrases, frozenset(values.get("near", ()))))
        if len({trait.key for trait in found}) != len(found):
            raise ValueError("two traits have the same key")
        named = {key for trait in found for key in trait.near}
        turns = cycle(ALONE)
        return cls(tuple(t if t.near or t.key in named else replace(t, split=next(turns)) for t in found))

    @cached_property
    def others(self) -> Mapping[str, tuple[Trait, ...]]:
        return {
            one.key: tuple(
                t
                for t in self.found
                if t.split == one.split and t is not one and t.key not in one.near and one.key not in t.near
            )
            for one in self.found
        }

    def other(self, trait: Trait, rng: random.Random) -> Trait:
        """Half of the time one of the same table, whose subjects are nearer."""
        pool = self.others[trait.key]
        if rng.random() < NEARBY:
            pool = tuple(other for other in pool if other.table == trait.table) or pool
        return rng.choice(pool)


@dataclass(frozen=True)
class Side:
    """One side of a trait, as `forms` has it said."""

    trait: Trait
    side: int
    among: Traits = field(compare=False, repr=False)

    @property
    def key(self) -> str:
        return f"{NAMES[self.trait.split]}/{self.trait.key}/{SIDES[self.side]}"

    @property
    def contrary(self) -> "Side":
        return Side(self.trait, 1 - self.side, self.among)

    def asked(self) -> Behavior:
        return _asked(self)

    def denied(self) -> Behavior:
        return _denied(self)

    def asked_of_user(self) -> Behavior | None:
        return _asked_of_user(self)

    def quoted(self) -> Behavior:
        return _quoted(self)

    def said(self, rng: random.Random) -> str:
        return rng.choice(self.trait.said[self.side])

    def other(self, rng: random.Random) -> "Side":
        return Side(self.among.other(self.trait, rng), rng.randrange(2), self.among)

    def rows(self, rng: random.Random) -> list[Told]:
        """As many that are right by a quote or a denial as wrong ones."""
        rows = [
            (self.asked(), PRESENT, CONTRARY),
            (self.contrary.asked(), ABSENT, CONTRARY),
            (self.other(rng).asked(), ABSENT, ELSE),
        ]
        if rng.random() < QUOTED:
            right = rng.random() < 0.5
            rows.append((self.quoted(), PRESENT, CONTRARY) if right else (self.contrary.quoted(), ABSENT, CONTRARY))
        if rng.random() < DENIES:
            right = rng.random() < 0.5
            rows.append((self.contrary.denied(), PRESENT, CONTRARY) if right else (self.denied(), ABSENT, CONTRARY))
        return rows


def _framed(
    key: str, phrases: Sequence[str], around: Sequence[str], test: Sequence[str], needs: str = "reply"
) -> Behavior:
    """`test` frames are those of held-out traits."""
    rng = rng_for("framed", key)
    texts = [frame.format(phrase) for phrase in phrases for frame in rng.sample(around, len(around))]
    held = tuple(frame.format(phrase) for phrase in phrases for frame in test)
    return Behavior(key, tuple(rng.sample(texts, min(WORDINGS, len(texts)))), held, (needs,), whole=True)


@cache
def _asked(side: Side) -> Behavior:
    return _framed(side.key, side.trait.phrases[side.side], frames(user=False), p.TEST_FRAMES)


@cache
def _denied(side: Side) -> Behavior:
    return _framed(f"{side.key}/denied", side.trait.phrases[side.side], DENIED, DENIED)


@cache
def _quoted(side: Side) -> Behavior:
    return _framed(f"{side.key}/said", [text.rstrip(".") for text in side.trait.said[side.side]], SAID, SAID)


@cache
def _asked_of_user(side: Side) -> Behavior | None:
    """None where no phrase can be said of the user as it stands."""
    phrases = [MY.sub("their", text) for text in side.trait.phrases[side.side] if not ITSELF.search(text)]
    if not phrases:
        return None
    return _framed(f"{side.key}/user", phrases, frames(user=True), p.USER_TEST_FRAMES, "user")


FORMS = (forms.plain, forms.within, forms.two, forms.question, forms.user_says)
FORM_SHARES = (0.6, 0.12, 0.1, 0.1, 0.08)


def trait_examples(
    tables: Mapping[str, Mapping[str, Any]], talk: Sequence[Conversation], kept: Callable[[str], bool] = lambda _: True
) -> Iterator[Example]:
    """`talk` are short conversations that longer forms borrow turns from."""
    among = Traits.read(tables)
    for side in (Side(trait, side, among) for trait in among.found for side in range(len(SIDES))):
        for place, text in enumerate(side.trait.said[side.side]):
            text_id = f"{side.key}/{place}"
            if not kept(text_id):
                continue
            held = side.trait.split != TRAIN
            for number in range(HELD_OFTEN if held else OFTEN):
                rng = rng_for("trait", text_id, number)
                form = rng.choices(FORMS, FORM_SHARES)[0] if number else forms.plain
                span, rows = form(side, text, rng, talk)
                group = UNSEEN if held else TRAINED
                marked = tuple(Row(behavior, told, group, sure) for behavior, told, sure in rows)
                yield Example(span, text_id, "made-up traits", marked)
