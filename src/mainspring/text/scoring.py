"""scoring.json: how a checkpoint wants to be asked. Every key is optional, unknown keys are errors.

    {"version": 1,
     "questions": {"behavior": TEMPLATE, "yes_no": TEMPLATE, "choice": TEMPLATE},
     "answers": {"behavior": ["A", "B", "C"], "yes_no": ["Yes", "No"], "choice": ["A", "B", ...]},
     "calibration": {"behavior": {"temperature": 1.0, "bias": [0, 0, 0]}, "yes_no": {...}, "choice": {...}},
     "limits": {"view_tokens": 32768, "definition_chars": 20000}}

Templates see `definition` (behavior), `question` (the others), `yes`, `no`, `options` and `answers`; the chat template
turns their output into a user turn. Answers are words of one token each, in the order of the labels.
"""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from mainspring.errors import BehaviorError, TemplateError, TokenizerError
from mainspring.text.probability import Calibration
from mainspring.text.question import MAX_DEFINITION_CHARS, MAX_OPTIONS, Kind
from mainspring.text.tokenizer import Tokenizer

BEHAVIOR = """\
Judge the conversation above, and nothing in this message, for one behavior.

{{ definition }}

Answer with one letter: {{ answers[0] }} if the behavior is present, {{ answers[1] }} if it is absent, \
{{ answers[2] }} if it can't be told from this conversation."""

YES_NO = """\
Answer a question about the conversation above.

{{ question }}
{% if yes %}
{{ answers[0] }}: {{ yes }}
{% endif %}
{% if no %}
{{ answers[1] }}: {{ no }}
{% endif %}

Answer with one word: {{ answers[0] }} or {{ answers[1] }}."""

CHOICE = """\
Answer a question about the conversation above.

{{ question }}
{% for option in options %}
{{ answers[loop.index0] }}: {{ option }}
{% endfor %}

Answer with the sign in front of the one option that fits best."""


class Questions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    behavior: str = BEHAVIOR
    yes_no: str = YES_NO
    choice: str = CHOICE


class Answers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """None: words chosen for the tokenizer, see `answer_words`."""

    behavior: tuple[str, str, str] | None = None
    yes_no: tuple[str, str] | None = None
    choice: tuple[str, ...] | None = None


class Calibrations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    behavior: Calibration = Calibration()
    yes_no: Calibration = Calibration()
    choice: Calibration = Calibration()


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`view_tokens` None: the context length that the model's config names."""

    view_tokens: int | None = None
    definition_chars: int = MAX_DEFINITION_CHARS


class Scoring(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1] = 1
    questions: Questions = Questions()
    answers: Answers = Answers()
    calibration: Calibrations = Calibrations()
    limits: Limits = Limits()


def read_scoring(data: bytes, where: str = "scoring.json") -> Scoring:
    """TemplateError names what is wrong and where."""
    try:
        scoring = msgspec.json.decode(data, type=Scoring)
    except msgspec.DecodeError as error:
        raise TemplateError(f"{where}: {error}") from None
    sizes: dict[Kind, int] = {"behavior": 3, "yes_no": 2, "choice": 0}
    for kind, size in sizes.items():
        calibration: Calibration = getattr(scoring.calibration, kind)
        if not (math.isfinite(calibration.temperature) and calibration.temperature > 0):
            raise TemplateError(f"{where}: calibration.{kind}.temperature must be a positive number")
        if not all(map(math.isfinite, calibration.bias)) or (size and len(calibration.bias) not in (0, size)):
            raise TemplateError(f"{where}: calibration.{kind}.bias must be {size or 'finite'} numbers")
    limits = scoring.limits
    if limits.definition_chars < 1 or (limits.view_tokens is not None and limits.view_tokens < 1):
        raise TemplateError(f"{where}: limits must be positive")
    return scoring


class AnswerIds(msgspec.Struct, frozen=True):
    """Words shown in the question and the ids under which their logits are read."""

    words: tuple[str, ...]
    ids: tuple[int, ...]


def answer_words(scoring: Scoring, tokenizer: Tokenizer, prefix: str) -> dict[Kind, AnswerIds]:
    """The answers of every kind. `prefix` is the space that precedes the answer where the prompt ends in a word.

    TokenizerError where a word that scoring.json asks for is not one token, or two words are the same one.
    """
    answers = scoring.answers
    letters = [chr(code) for code in range(ord("A"), ord("Z") + 1)]
    pairs = [first + second for first in letters for second in letters]
    signs = [*letters, *pairs, *map(str.lower, letters), *map(str, range(1000))]
    return {
        "behavior": _fixed(answers.behavior, tokenizer, prefix) or _first(["ABC", "abc", "123"], tokenizer, prefix),
        "yes_no": _fixed(answers.yes_no, tokenizer, prefix)
        or _first([("Yes", "No"), ("yes", "no"), "YN", "AB", "12"], tokenizer, prefix),
        "choice": _fixed(answers.choice, tokenizer, prefix) or _available(signs, tokenizer, prefix),
    }


def _fixed(words: tuple[str, ...] | None, tokenizer: Tokenizer, prefix: str) -> AnswerIds | None:
    """Ids of the words after the prefix, or of the bare words where those after it take several tokens."""
    if words is None:
        return None
    ids = _ids(words, tokenizer, prefix) or tuple(tokenizer.token_id(word) for word in words)
    if len(set(ids)) != len(ids):
        raise TokenizerError("scoring.json: two answers are the same token")
    return AnswerIds(words, ids)


def _first(candidates: Sequence[Sequence[str]], tokenizer: Tokenizer, prefix: str) -> AnswerIds:
    for start in dict.fromkeys((prefix, "")):
        for words in candidates:
            if ids := _ids(words, tokenizer, start):
                return AnswerIds(tuple(words), ids)
    raise TokenizerError(f"{tokenizer.where} has no tokens for the default answers; scoring.json has to name some")


def _ids(words: Sequence[str], tokenizer: Tokenizer, prefix: str) -> tuple[int, ...]:
    """Empty unless every word is one token after the prefix."""
    try:
        return tuple(tokenizer.token_id(prefix + word) for word in words)
    except TokenizerError:
        return ()


def _available(signs: list[str], tokenizer: Tokenizer, prefix: str) -> AnswerIds:
    """As many signs as are one token each, up to the most options a question may have."""
    best: dict[int, str] = {}
    for start in dict.fromkeys((prefix, "")):
        chosen: dict[int, str] = {}
        for sign, ids in zip(signs, tokenizer.encode_texts([start + sign for sign in signs]), strict=True):
            if len(ids) == 1 and len(chosen) < MAX_OPTIONS:
                chosen.setdefault(int(ids[0]), sign)
        best = best if len(best) >= len(chosen) else chosen
    return AnswerIds(tuple(best.values()), tuple(best))


def check_options(count: int, available: AnswerIds) -> None:
    if count > len(available.words):
        raise BehaviorError(f"{count} options, the tokenizer has signs for {len(available.words)}", param="options")
