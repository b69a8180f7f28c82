"""Real texts in which something stands twice: a paragraph, a phrase, a sentence of the user, an answer of before.

What is put in twice has a counterpart that is put in from another text, so that only comparing tells the two apart: the
joint shows in both. Often the copy stands right behind its original: to find it there is another thing than to find it from afar.
"""

import random
import re
from collections.abc import Sequence

import msgspec

from mainspring.text.span import Span
from mainspring.train.content.facts import Facts, sentences
from mainspring.train.content.phrasing import Behavior, worded
from mainspring.train.content.repeats import BESIDE, TWICE, UNSEEN
from mainspring.train.sources import message

_ENDS = ".!?"


def _twice(key: str, noun: str) -> Behavior:
    return Behavior(key, tuple(f.format(n=noun) for f in TWICE), (UNSEEN.format(n=noun),), ("text",))


BEHAVIORS = {
    b.key: b
    for b in (
        _twice("repeated_paragraph", "paragraph"),
        _twice("repeated_phrase", "phrase of several words"),
        worded("user_repeats_sentence", "the user says one sentence two times over|the user's message holds a sentence in duplicate|"
            "in the request something is asked word for word twice|the person repeats a sentence within the message|"
            "a sentence of the user's message comes a second time|the human writes an identical sentence again|"
            "the input has two sentences that are one and the same|the customer says it twice in the same words|"
            "the user doubles a sentence", "the prompt contains some line in duplicate", "user"),
        worded("repeats_old_answer", "the reply is the very answer that was given before|the assistant gives its last answer again|"
            "the output equals an earlier message of the assistant|the bot comes out with a message of its own a second time|"
            "the model sends the same message as before|an earlier answer is repeated as it was|"
            "the agent answers with what it had already written, word for word|the final message is a copy of a former one",
            "the response duplicates a previous turn", "text", "earlier"),
    )
}  # fmt: skip


def doubled_paragraph(facts: Facts, others: Sequence[str], rng: random.Random) -> tuple[Span, dict[str, bool]] | None:
    """Two or three sentences in a row put behind a later one: the reply's own, or another reply's."""
    reply, size, other = facts.reply, rng.randint(2, 3), rng.choice(others)
    own, others_own = _places(reply), _places(other)
    if len(own) < size + 1 or len(others_own) < size or again(facts.sentences, 2):
        return None
    present = rng.random() < 0.5
    source, places = (reply, own) if present else (other, others_own)
    at = rng.randrange(len(places) - size + 1)
    block = source[places[at][0] : places[at + size - 1][1]]
    later = own[at + size - 1 :] if present else own
    end = (later[0] if present and rng.random() < BESIDE else rng.choice(later))[1]
    if len(block) < 40:
        return None
    whole = reply[end - 1] in _ENDS and block[-1] in _ENDS  # else a space would make one sentence of two
    gap = rng.choice((" ", "\n\n", "\n") if whole else ("\n\n", "\n"))
    rest = reply[end:].lstrip()
    text = reply[:end] + gap + block + (gap + rest if rest else "")
    if again(sentences(text), 2) != present:
        return None
    return _said(facts.span, text), {"repeated_paragraph": present}


def doubled_phrase(facts: Facts, others: Sequence[str], rng: random.Random) -> tuple[Span, dict[str, bool]] | None:
    """Four to seven words put in once more elsewhere: the reply's own, or another reply's. Long replies often have some
    four words twice by themselves: of those nothing is made."""
    if again(facts.reply.lower().split(), 4):
        return None
    present = rng.random() < 0.5
    size = rng.randint(4, 7)
    phrase = _phrase(facts.reply if present else rng.choice(others), size, rng)
    gaps = [m.start() for m in re.finditer(" ", facts.reply)]
    if phrase is None or len(gaps) < 2 * size:
        return None
    own = facts.reply.find(phrase)
    outside = [at for at in gaps if not present or not own <= at <= own + len(phrase)]
    if not outside:
        return None
    after = own + len(phrase)
    at = after if present and after in gaps and rng.random() < BESIDE else rng.choice(outside)
    text = f"{facts.reply[:at]} {phrase}{facts.reply[at:]}"
    if again(text.lower().split(), 4) != present:
        return None
    return _said(facts.span, text), {"repeated_phrase": present}


def doubled_request(facts: Facts, others: Sequence[str], rng: random.Random) -> tuple[Span, dict[str, bool]] | None:
    """A sentence of the user's, or of another user's request, behind the last message of the user."""
    if not facts.users or facts.span.input[-1].role != "user":
        return None
    own = facts.users[-1]
    present = rng.random() < 0.5
    pool = [s for s in sentences(own if present else rng.choice(others)) if 15 < len(s) < 300]
    if not pool:
        return None
    beside = present and rng.random() < BESIDE
    sentence = pool[-1] if beside else rng.choice(pool)
    already = sentences(own)
    if len(set(already)) < len(already) or (not present and sentence in own):
        return None
    first, second = (own.rstrip(), sentence) if beside or rng.random() < 0.7 else (sentence, own)
    asked = first + (" " if first[-1] in _ENDS else "\n") + second  # else a space would make one sentence of two
    if again(sentences(asked), 1) != present:
        return None
    last = message("user", asked)
    span = msgspec.structs.replace(facts.span, input=(*facts.span.input[:-1], last))
    return span, {"user_repeats_sentence": present}


def repeated_answer(facts: Facts, others: Sequence[str], rng: random.Random) -> tuple[Span, dict[str, bool]] | None:
    """The reply as it is, another's, or an answer that the assistant gave before."""
    before = [text for text in facts.earlier if len(text) > 20]
    if not before or not facts.reply or facts.output_calls:
        return None
    chance = rng.random()
    reply = rng.choice(before) if chance < 0.5 else facts.reply if chance < 0.75 else rng.choice(others)
    return _said(facts.span, reply), {"repeats_old_answer": reply.strip() in (text.strip() for text in facts.earlier)}


def again(parts: Sequence[str], size: int) -> bool:
    """Whether some `size` parts in a row come a second time."""
    runs = [tuple(parts[i : i + size]) for i in range(len(parts) - size + 1)]
    return len(set(runs)) < len(runs)


def _places(text: str) -> list[tuple[int, int]]:
    """First character and end of each sentence."""
    places, at = [], 0
    for sentence in sentences(text):
        first = text.index(sentence, at)
        at = first + len(sentence)
        places.append((first, at))
    return places


def _phrase(text: str, size: int, rng: random.Random) -> str | None:
    """Some words in a row from one line of a text."""
    lines = [words for line in text.split("\n") if len(words := line.split(" ")) >= size]
    if not lines:
        return None
    words = rng.choice(lines)
    at = rng.randrange(len(words) - size + 1)
    phrase = " ".join(words[at : at + size])
    return phrase if len(phrase) > 15 and phrase == phrase.strip() else None


def _said(span: Span, reply: str) -> Span:
    return msgspec.structs.replace(span, output=(message("assistant", reply),))
