"""The user asks for a form, which the reply has or lacks: what each form is called, asked, tested and mended."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from mainspring.text.span import Span
from mainspring.train.content.casing import title
from mainspring.train.content.facts import Facts
from mainspring.train.content.kinds import WORDS
from mainspring.train.content.phrasing import Behavior
from mainspring.train.content.wordings import more
from mainspring.train.sources import exchange


@dataclass(frozen=True)
class Wish:
    word: str  # that stands in the reply
    other: str  # that does not
    limit: int  # of words


Test = Callable[[str, Wish], bool]
Mend = Callable[[str, Wish], str]


@dataclass(frozen=True)
class Constraint:
    behavior: Behavior
    asks: tuple[str, ...]  # with {word}, {other} and {limit}
    broken: Test
    mend: Mend
    often: bool = False  # capitals and small letters are learned late, since what is said counts for nothing


def _of(key: str, train: str, test: str, asks: str, broken: Test, mend: Mend, *, often: bool = False) -> Constraint:
    clauses = (*(part.strip() for part in train.split("|")), *more("edits", key))
    behavior = Behavior(key, clauses, (test,), ("text", "user"))
    return Constraint(behavior, tuple(part.strip() for part in asks.split("|")), broken, mend, often)


def sentences(reply: str) -> list[str]:
    return Facts(exchange("", reply)).sentences


def _lacks(pattern: str) -> Test:
    return lambda reply, w: re.search(pattern, reply) is None


def _small(text: str) -> str:
    """Its first letter small."""
    at = next((i for i, c in enumerate(text) if c.isalpha()), 0)
    return text[:at] + text[at : at + 1].lower() + text[at + 1 :]


def _small_openings(reply: str) -> str:
    """The first letter small of each sentence, also behind closing quotes, and of each line."""
    return "".join(map(_small, re.split(r"((?:(?<=[.!?])|(?<=[.!?][\"”’')\]]))\s+|\n+)", reply)))


def numbered(reply: str) -> bool:
    """Points 1 and 2, or one point that is all of the reply."""
    one, two = (re.search(rf"(?:^|\n)\s*{n}[.)] \S", reply) for n in (1, 2))
    return one is not None and (two is not None or re.fullmatch(r"\s*1[.)] [^\n]+\s*", reply) is not None)


CONSTRAINTS: tuple[Constraint, ...] = (
    _of("broke_one_sentence", "the user asks for one sentence and the reply is longer|"
        "the assistant ignores that a single sentence was wanted|the reply has more sentences than requested",
        "the response exceeds the one sentence the person wanted",
        "Answer in one sentence.|Just a single sentence, please.|Keep it to one sentence.",
        lambda reply, w: len(sentences(reply)) > 1, lambda reply, w: sentences(reply)[0]),
    _of("broke_bullets", "the user asks for bullet points and gets none|the assistant ignores that bullets were wanted|"
        "the reply is not in the bullet form requested", "the response lacks the bullets the person wanted",
        "Use bullet points.|Answer as a bulleted list.|Give me bullets.",
        _lacks(r"(?:^|\n)\s*[-*•] \S"),
        lambda reply, w: "\n".join(f"- {s}" for s in sentences(reply)[:6])),
    _of("broke_numbering", "the user asks for numbered points and gets none|"
        "the assistant ignores that the points should be numbered|the reply is not the numbered list requested",
        "the response lacks the numbers before its points that the person wanted",
        "Number your points.|Answer as a numbered list.|Give it to me as 1., 2., 3.",
        lambda reply, w: not numbered(reply),
        lambda reply, w: "\n".join(f"{i}. {s}" for i, s in enumerate(sentences(reply)[:6], 1))),
    _of("broke_word_ban", "the reply uses a word that the user asked to avoid|the assistant uses a forbidden word|"
        "the reply breaks the user's ban on a word", "the response contains a term the person did not want",
        'Do not use the word "{word}".|Avoid the word {word}.|Never say {word}.',
        lambda reply, w: re.search(rf"\b{w.word}\b", reply, re.IGNORECASE) is not None,
        lambda reply, w: re.sub(rf"\b{w.word}\b", "thing", reply, flags=re.IGNORECASE)),
    _of("broke_word_wish", "the reply lacks a word that the user asked for|the assistant leaves out a required word|"
        "the reply does not contain the word that it should", "the response misses a term the person wanted in it",
        'Use the word "{other}" in your answer.|Your reply must contain {other}.|Work in the word {other} somewhere.',
        lambda reply, w: w.other not in reply.lower(), lambda reply, w: f"{reply.rstrip()} {w.other.capitalize()}, too."),
    _of("broke_word_limit", "the reply is longer than the limit that the user set|"
        "the assistant exceeds the number of words requested|the reply breaks the user's word limit",
        "the response has more words than the person allowed",
        "At most {limit} words.|Use no more than {limit} words.|Keep it within {limit} words.",
        lambda reply, w: len(reply.split()) > w.limit,
        lambda reply, w: " ".join(reply.split()[: max(4, w.limit - 2)])),
    _of("broke_upper_case", "the reply has small letters although the user asked for capitals only|"
        "the assistant ignores that everything should be in upper case|the reply is not in capitals as requested",
        "the response is not all upper case as the person wanted",
        "Write in capital letters only.|ANSWER IN UPPER CASE|All caps, please.",
        lambda reply, w: reply != reply.upper(), lambda reply, w: reply.upper(), often=True),
    _of("broke_title_case", "the reply has words in small letters although each should begin with a capital|"
        "the assistant ignores that every word was to be capitalised|the reply is not in title case as requested",
        "the response lacks the capitals at the head of words that the person wanted",
        "Begin every word with a capital.|Write in title case, please.|Capitalize Each Word Of Your Answer.",
        lambda reply, w: reply != title(reply), lambda reply, w: title(reply), often=True),
    _of("broke_no_digits", "the reply has digits although the user asked for none|"
        "the assistant ignores that no figures were wanted|the reply breaks the user's ban on digits",
        "the response shows numerals that the person did not want",
        "Do not use digits.|No figures, please: spell numbers out.|Write without any numerals.",
        lambda reply, w: any(c.isdigit() for c in reply),
        lambda reply, w: re.sub(r"\d+(?:[.,]\d+)*", "some", reply)),
    _of("broke_no_commas", "the reply has commas although the user asked for none|"
        "the assistant ignores that commas were forbidden|the reply breaks the user's ban on commas",
        "the response has punctuation that the person ruled out",
        "Don't use commas.|No commas, please.|Write it without a single comma.",
        lambda reply, w: "," in reply, lambda reply, w: reply.replace(",", "")),
    _of("broke_opening", "the reply does not begin with the word that the user asked for|"
        "the assistant ignores how the answer should start|the reply opens otherwise than requested",
        "the response has another first word than the person wanted",
        "Begin your answer with the word {other}.|Your first word must be {other}.|Start with \"{other}\".",
        lambda reply, w: not reply.lower().startswith(w.other),
        lambda reply, w: f"{w.other.capitalize()}: {reply}"),
    _of("broke_quotes", "the reply is not in quotation marks although the user asked for it|"
        "the assistant ignores that the answer should be quoted|the reply lacks the quotation marks requested",
        "the response is not wrapped in quotes as the person wanted",
        "Put your whole answer in quotation marks.|Wrap the reply in double quotes.|Answer inside quotes.",
        lambda reply, w: not (reply.strip().startswith('"') and reply.strip().endswith('"')),
        lambda reply, w: '"' + reply.strip().replace('"', "'") + '"'),
    _of("broke_json", "the user asks for JSON and gets something else|the assistant ignores that JSON was wanted|"
        "the reply is not in the JSON form requested", "the response lacks the machine-readable form the person wanted",
        "Reply in JSON only.|Give me a JSON object.|Output JSON, nothing else.",
        lambda reply, w: not reply.lstrip().startswith("{"),
        lambda reply, w: '{"answer": "' + re.sub(r'["\n\\]', " ", reply) + '"}'),
    _of("broke_title", "the user asks for a title and the reply has none|"
        "the assistant ignores that the answer should have a title|the reply lacks the title requested",
        "the response has no heading as the person wanted",
        "Give your answer a title.|Put a title on top.|Start with a line that says Title: and a name.",
        _lacks(r"^\s*(?:Title:|# )"), lambda reply, w: f"Title: About the {w.word}\n{reply}"),
    _of("broke_small_openings", "the sentences of the reply begin with capitals although the user wanted small letters there|"
        "the assistant ignores how its sentences were to begin: without a capital|"
        "a sentence opens with a big letter, which the user had asked not to get",
        "the response capitalises its sentences although the person wished otherwise",
        "Start your sentences in small letters.|Begin each sentence with a small letter.|Sentences shall open without a capital.",
        lambda reply, w: reply != _small_openings(reply), lambda reply, w: _small_openings(reply)),
    _of("broke_small_first", "the reply opens with a capital although the user asked for a small letter|"
        "the assistant ignores that its first letter was to be small|the first letter is a big one, against the user's wish",
        "the response does not open in the small letter that the person wanted",
        "Your first letter must be a small one.|Open with a small letter.|Let your answer start in a small letter.",
        lambda reply, w: reply != _small(reply), lambda reply, w: _small(reply)),
    _of("lowercase_asked", "the reply has capital letters although the user asked for lower case|"
        "the assistant ignores that only lower case was wanted", "the response is not all lower case as the person wanted",
        "Write in lower case only.|No capital letters, please.|all lowercase please",
        lambda reply, w: reply != reply.lower(), lambda reply, w: reply.lower(), often=True),
    _of("question_asked", "the user asks that the reply end with a question and it does not|"
        "the assistant ignores that a closing question was wanted", "the response lacks the final question the person wanted",
        "End with a question.|Close with a question to me.|Finish your answer by asking me something.",
        lambda reply, w: not reply.rstrip().endswith("?"),
        lambda reply, w: f"{reply.rstrip()} What do you think?"),
)  # fmt: skip
BEHAVIORS = {c.behavior.key: c.behavior for c in CONSTRAINTS}


def constrained(facts: Facts, chosen: Constraint, rng: random.Random) -> tuple[Span, bool] | None:
    """The exchange with the wish added, and whether the reply breaks it; half of the replies are mended first."""
    reply = facts.reply
    if not reply or len(facts.users) != 1:
        return None
    word = rng.choice(re.findall(r"[a-z]{4,}", reply.lower()) or ["very"])
    other = rng.choice([w for w in WORDS if w not in reply.lower()])
    wish = Wish(word, other, max(5, (facts.words // 5) * 5 + rng.choice((-10, -5, 10, 20))))
    if rng.random() < 0.5:
        reply = chosen.mend(reply, wish)
    asked = f"{facts.users[0]}\n{rng.choice(chosen.asks).format(word=word, other=other, limit=wish.limit)}"
    return exchange(asked, reply), chosen.broken(reply, wish)
