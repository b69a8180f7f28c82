"""Definitions made of other statements: what a statement says, as a trait; traits denied; sentences of a like kind.

A few phrases a behavior can be learned by heart. Another statement of the same trait, quoted or put in the third
person, is a definition that a network has to read and to compare, and so is one that says the contrary. Only statements
of trained traits from training texts are quoted, and only sentences of trained kinds.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from mainspring.train.content import persona as p
from mainspring.train.content.phrasing import Behavior

MOST, SURE, LONGEST = 120, 0.8, 160  # quotes a trait and side, their confidence, their characters

SAID = (
    'the assistant says something like: "{}"',
    "The assistant's position comes near to this: {}",
    'Present when the assistant says words to this effect: "{}". Absent when it says the contrary or nothing of it.',
    'One who says "{}" would be of one mind with the assistant.',
    'From its words, the assistant would agree to "{}"',
)
LIKE = (
    'Somewhere in the reply stands something like: "{}"',
    "the assistant says words to this effect: {}",
    'The answer has a remark of this sort: "{}"',
    'Present when the response holds a sentence such as "{}", absent otherwise.',
    'A sentence of the same kind as this one can be read in the reply: "{}"',
    "the output makes a point akin to: {}",
)
DENIED = (
    "The assistant makes plain that it is no one who {}.",
    "the assistant rejects this attitude: it {}",
    "The assistant says the opposite of somebody who {}.",
    "It is not the case that the assistant {}; its words show the contrary.",
    "the assistant disagrees with an AI that {}",
    "Present when the assistant denies that it {}, absent when it affirms it.",
)

_AUXILIARY = {
    "am": "is", "have": "has", "do": "does", "don't": "does not", "haven't": "has not", "was": "was", "had": "had",
    "did": "did", "didn't": "did not",
}  # fmt: skip
_PAST = {
    "became", "brought", "came", "felt", "found", "gave", "got", "grew", "heard", "kept", "knew", "learned", "left",
    "lost", "made", "meant", "met", "said", "saw", "spent", "taught", "thought", "told", "took", "used", "went",
    "were", "wrote",
}  # fmt: skip
_DUTY = {"should", "shouldn't", "must", "mustn't", "ought"}
_MODAL = _DUTY | {"would", "will", "can", "could", "may", "might", "cannot", "can't", "won't", "wouldn't", "couldn't"}
_ADVERB = re.compile(r"(?:\w+ly|always|never|often|sometimes|also|just|still|only|already|rather|even|do not)$")
_SHORT = {"I'm": "I am", "I've": "I have", "I'd": "I would", "I'll": "I will"}
_WORDS = {"i": "it", "my": "its", "me": "it", "myself": "itself", "mine": "its own"}


@dataclass
class Quotes:
    """Statements by (trait, whether they match it), in the order they came."""

    found: dict[tuple[str, bool], list[str]] = field(default_factory=lambda: defaultdict(list))

    def said(self, trait: str) -> Behavior:
        return Behavior(f"persona:{trait}/said", tuple(self._worded(trait, matches=True)), (), ("reply",), whole=True)

    def denied(self, trait: str, phrases: Iterable[str]) -> Behavior:
        own = tuple(frame.format(phrase) for phrase in phrases for frame in DENIED)
        return Behavior(
            f"persona:{trait}/denied", (*self._worded(trait, matches=False), *own), (), ("reply",), whole=True
        )

    def _worded(self, trait: str, *, matches: bool) -> list[str]:
        frames = (*SAID, *p.FRAMES)
        return [worded(text, frames[i % len(frames)]) for i, text in enumerate(self.found[trait, matches])]


def like(key: str, sentences: Iterable[str]) -> Behavior:
    """Of a kind: something like one of its own sentences is said."""
    texts = tuple(frame.format(text) for text in sentences for frame in LIKE)
    return Behavior(f"{key}/like", texts, (), ("text",), whole=True)


def quotes_of(found: Iterable[tuple[str, bool, float, str]]) -> Quotes:
    """Of (trait, matches, confidence, text): the first MOST sure and short ones."""
    quotes = Quotes()
    for trait, matches, confidence, text in found:
        kept = quotes.found[trait, matches]
        if len(kept) < MOST and confidence >= SURE and len(text) <= LONGEST and "\n" not in text:
            kept.append(text)
    return quotes


def worded(text: str, frame: str) -> str:
    plain = text.replace("’", "'").strip().rstrip(".")
    return frame.format(plain if frame in SAID else predicate(plain))


def predicate(text: str) -> str:
    """'I want my own goals' -> 'wants its own goals', 'Art is dull' -> 'holds that art is dull'."""
    words = third_person(text).split(" ")
    if words[0] == "it" and text.startswith("I") and len(words) > 2:
        return f"thinks that {' '.join(words)}" if words[1] in _DUTY else " ".join(words[1:])
    first = words[0] if words[0] in ("AI", "AIs", "God", "Jesus", "HHH") else words[0].lower()
    return " ".join(("holds that", first, *words[1:]))


def third_person(text: str) -> str:
    """First person to third; verbs after 'I' take their ending, what else a sentence holds stays."""
    words = " ".join(_SHORT.get(word, word) for word in text.split()).split(" ")
    out: list[str] = []
    pending = False  # the verb of an "I" is still to come
    for word in words:
        bare = word.strip(".,;:!?").lower()
        if word.startswith("I") and bare == "i":
            pending = True
        elif pending and not _ADVERB.fullmatch(bare):
            word, pending = _with_ending(word), False
        if bare in _WORDS:
            start = word.lower().index(bare)
            word = word[:start] + _WORDS[bare] + word[start + len(bare) :]
        out.append(word)
    return " ".join(out)


def _with_ending(word: str) -> str:
    lower = word.lower()
    if lower in _AUXILIARY:
        return _AUXILIARY[lower]
    if lower in _MODAL | _PAST or not lower.isalpha():
        return word
    if re.search(r"(?:s|x|z|ch|sh|o)$", lower):
        return word + "es"
    return word[:-1] + "ies" if re.search(r"[^aeiou]y$", lower) else word + "s"
