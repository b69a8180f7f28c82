"""Made-up traits: an attitude and what it is about, thousands of combinations with a few statements each.

A network that knows some eighty traits by heart need not read their definitions. Here nothing can be learned that way:
whether "is fond of felines" suits "I can't get enough of house cats" is told by comparing both parts alone. Tables:
`attitudes.toml` (sentences and definitions), `attitudes_objects.toml`, `attitudes_acts.toml`.

Held-out topics are spoken of in held-out sentences only, and none of either is trained on.
"""

import random
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

from mainspring.train.content.examples import rng_for

HELD_TEMPLATES = 2  # the last of each list
HELD_EVERY, HELD_AT = 6, 2  # of the objects of a domain
PARTNERS, PURPOSES = 2, 3  # an object is compared with so many others, an act combined with so many purposes
SIDES = (0, 1)
# The first of a list are the plainest. They come more often: a network that can't yet tell "likes cats" from "likes
# dogs" learns nothing at all from riddles.
PLAIN, PLAINLY = 4, 0.6

_AGREES = re.compile(r"\[([^|\]]+)\|([^\]:]+)(?::(y))?\]")


@dataclass(frozen=True)
class Topic:
    """`names` are those of x and, where there are two, of y; names of a plural end with "*"."""

    key: str
    domain: str
    names: tuple[tuple[str, ...], ...]
    parts: tuple[str, ...]
    held: bool
    distinct: bool = False  # from the others of its domain


@dataclass(frozen=True)
class Attitude:
    """Templates by side: 0 for a, 1 for b. `warm` is the side that speaks for a topic, None where neither does."""

    key: str
    said: tuple[tuple[str, ...], tuple[str, ...]]
    defined: tuple[tuple[str, ...], tuple[str, ...]]
    warm: int | None
    apart: frozenset[str]
    swap: bool  # side b is side a with x and y exchanged


@dataclass(frozen=True)
class Stance:
    """One side of an attitude to a topic."""

    attitude: Attitude
    side: int
    topic: Topic

    @property
    def key(self) -> str:
        return f"attitude/{self.attitude.key}:{'ab'[self.side]}|{self.topic.key}"

    @property
    def contrary(self) -> "Stance":
        return Stance(self.attitude, 1 - self.side, self.topic)

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        return self.topic.names[::-1] if self.attitude.swap and self.side else self.topic.names

    def about(self, topic: Topic) -> "Stance":
        return Stance(self.attitude, self.side, topic)


@cache
def table(name: str) -> Mapping[str, Mapping[str, Any]]:
    found: dict[str, Any] = tomllib.loads((files(__package__) / f"{name}.toml").read_text("utf-8"))
    return found


def _split(text: str, by: str = "|") -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(by))


@cache
def attitudes() -> Mapping[str, Attitude]:
    found = {}
    for key, entry in table("attitudes").items():
        swap = "swap" in entry
        said, defined = ((entry[a], entry[a if swap else b]) for a, b in (("a", "b"), ("a_is", "b_is")))
        found[key] = Attitude(
            key,
            (tuple(said[0]), tuple(said[1])),
            (tuple(defined[0]), tuple(defined[1])),
            "ab".index(entry["warm"]) if "warm" in entry else None,
            frozenset(entry.get("apart", ())),
            swap,
        )
    return found


def _objects(domain: str, entry: Mapping[str, Any]) -> list[Topic]:
    return [
        Topic(names[0].rstrip("*"), domain, (names,), (names[0],), i % HELD_EVERY == HELD_AT, "distinct" in entry)
        for i, names in enumerate(map(_split, entry["of"]))
    ]


def _joined(x: Topic, y: Topic) -> Topic:
    key, parts = f"{x.key}|{y.key}", (*x.parts, *y.parts)
    return Topic(key, x.domain, (*x.names, *y.names), parts, x.held, x.distinct)


def _pairs(found: list[Topic], salt: str) -> Iterator[Topic]:
    """Each with a few of those after it, round about: no pair comes up twice, nor the other way round."""
    for held in (False, True):
        ring = [topic for topic in found if topic.held == held]
        rng_for("pairs", salt, held).shuffle(ring)
        for step in range(1, 1 + min(PARTNERS, (len(ring) - 1) // 2)):
            yield from (_joined(x, ring[(i + step) % len(ring)]) for i, x in enumerate(ring))


def _combined(acts: list[Topic], purposes: list[Topic]) -> Iterator[Topic]:
    for act in acts:
        rng = rng_for("purposes", act.key)
        for purpose in rng.sample([purpose for purpose in purposes if purpose.held == act.held], PURPOSES):
            yield _joined(act, purpose)


def _contradictions(name: str) -> Iterator[Topic]:
    for i, line in enumerate(table("attitudes_acts")[name]["of"]):
        sides = tuple(map(_split, _split(line, "//")))
        yield Topic(sides[0][0], name, sides, (sides[0][0],), i % HELD_EVERY == HELD_AT, distinct=True)


@cache
def topics() -> Mapping[str, tuple[Topic, ...]]:
    """By attitude."""
    found: dict[str, list[Topic]] = defaultdict(list)
    for domain, entry in table("attitudes_objects").items():
        objects = _objects(domain, entry)
        for key in entry["fits"].split():
            found[key] += _pairs(objects, f"{key}/{domain}") if attitudes()[key].swap else objects
    acts, purposes = (_objects(name, table("attitudes_acts")[name]) for name in ("acts", "purposes"))
    found["willing"] = list(_combined(acts, purposes))
    found["aim"], found["ready"], found["duty"] = [*acts, *purposes], acts, acts
    found["claim"], found["expect"] = (list(_contradictions(name)) for name in ("claims", "events"))
    return {key: tuple(found[key]) for key in attitudes()}


def stances() -> Iterator[Stance]:
    for key, attitude in attitudes().items():
        yield from (Stance(attitude, side, topic) for topic in topics()[key] for side in SIDES)


def other(stance: Stance, rng: random.Random) -> Stance:
    """The same attitude to something else: for a pair or an act with a purpose at times one that shares a part."""
    mine, key = stance.topic, stance.attitude.key
    alike = _sharing(key, mine)
    if alike and rng.random() < 0.4:
        return stance.about(rng.choice(alike))
    return stance.about(rng.choice(_far(key, mine)))


@cache
def _far(key: str, topic: Topic) -> tuple[Topic, ...]:
    """Of another domain, if need be of the same, and surely something else."""
    pool = [t for t in topics()[key] if t.held == topic.held and not set(t.parts) & set(topic.parts)]
    return tuple(t for t in pool if topic.distinct or t.domain != topic.domain) or tuple(pool)


@cache
def _sharing(key: str, topic: Topic) -> tuple[Topic, ...]:
    """Those that share one part of two."""
    if len(topic.parts) < 2:
        return ()
    same = (t for t in topics()[key] if t.held == topic.held and len(set(t.parts) & set(topic.parts)) == 1)
    return tuple(t for t in same if any(a == b for a, b in zip(t.parts, topic.parts, strict=True)))


@cache
def unsaid(stance: Stance) -> tuple[Stance, ...]:
    """Other attitudes to the same topic that a statement is sure not to show: those that speak for a topic where it
    speaks against it, the other way round, and those listed as apart. What it may imply is not among them."""
    found = []
    for key, attitude in attitudes().items():
        if key == stance.attitude.key or stance.topic not in topics()[key]:
            continue
        if key in stance.attitude.apart or stance.attitude.key in attitude.apart:
            found += [Stance(attitude, side, stance.topic) for side in SIDES]
        elif stance.attitude.warm is not None and attitude.warm is not None:
            against = attitude.warm if stance.side != stance.attitude.warm else 1 - attitude.warm
            found.append(Stance(attitude, against, stance.topic))
    return tuple(found)


def filled(template: str, names: tuple[str, ...]) -> str:
    """Slots and forms of verbs by the names' number."""
    slots = dict(zip("xy", names, strict=False))

    def agreeing(match: re.Match[str]) -> str:
        one, many, slot = match.groups()
        return many if slots[slot or "x"].endswith("*") else one

    plain = {key: name.rstrip("*") for key, name in slots.items()}
    return _AGREES.sub(agreeing, template).format(
        **plain, **{key.upper(): name[:1].upper() + name[1:] for key, name in plain.items()}
    )


def kept(templates: tuple[str, ...], *, held: bool) -> tuple[str, ...]:
    return templates[-HELD_TEMPLATES:] if held else templates[:-HELD_TEMPLATES]


def mixed(templates: tuple[str, ...], rng: random.Random) -> list[str]:
    """In an order by chance, with a good chance for plain ones to come early."""
    early = {text: rng.random() < PLAINLY for text in templates[:PLAIN]}
    return sorted(templates, key=lambda text: (not early.get(text, False), rng.random()))


def one(names: tuple[tuple[str, ...], ...], rng: random.Random) -> tuple[str, ...]:
    """A name of each, mostly the usual one."""
    return tuple(own[0] if rng.random() < PLAINLY else rng.choice(own) for own in names)


def said(stance: Stance, rng: random.Random, count: int) -> list[str]:
    """At most `count` statements, no two alike, each sentence as rarely as can be."""
    templates = mixed(kept(stance.attitude.said[stance.side], held=stance.topic.held), rng)
    names = [(one(stance.names, rng)), *rng.sample(found := list(product(*stance.names)), len(found))]
    texts: dict[str, None] = {}
    for turn, (at, template) in product(range(len(names)), enumerate(templates)):
        if len(texts) == count:
            break
        texts[filled(template, names[(turn + at) % len(names)])] = None
    return list(texts)
