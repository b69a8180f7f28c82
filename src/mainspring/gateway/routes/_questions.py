"""What System One and decisions share: typed questions out of instructions and criteria, numbers out of rows.

`confidence` of n options is (n * max - 1) / (n - 1): 0 where all are equal, 1 where one has everything.
"""

from typing import Any

import msgspec

from mainspring.gateway.calls import Floats, ScoreCall
from mainspring.gateway.errors import ValidationError
from mainspring.gateway.visit import Visit
from mainspring.text.question import Choice, Question, YesNo


def text_of(value: Any) -> str:
    """Texts as they are, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def yes_no(name: str, instructions: Any, yes: Any = None, no: Any = None) -> YesNo:
    return YesNo(name, text_of(instructions), *(None if each is None else text_of(each) for each in (yes, no)))


def options(name: str, instructions: Any, texts: list[str], param: str, most: int) -> Choice:
    """ValidationError naming the field; equal texts can't be told apart."""
    if not 2 <= len(texts) <= most:
        raise ValidationError(f"from 2 to {most} are possible", param=param, limit=most, actual=len(texts))
    if len(set(texts)) < len(texts):
        raise ValidationError("two are the same", param=param)
    return Choice(name, text_of(instructions), tuple(texts))


def described(name: str, description: Any) -> str:
    """An option as the model reads it."""
    text = "" if description is None else text_of(description).strip()
    return f"{name}: {text}" if text and text != name else name


def confidence(row: Floats) -> float:
    size = len(row)
    return min(1.0, max(0.0, (size * float(row.max()) - 1.0) / (size - 1)))


def expected(row: Floats) -> float:
    """The mean level, from 0."""
    return sum(level * float(share) for level, share in enumerate(row))


async def call_of(
    visit: Visit, *, model: str, span: Any, questions: tuple[Question, ...], fields: tuple[str, str], size: int,
    named: bool = False,
) -> ScoreCall:  # fmt: skip
    """`named`: the caller knows its questions by their ids, not by their numbers. ValidationError."""
    most = visit.gateway.config.limits.behaviors
    asked = sum(len(each.options) if isinstance(each, Choice) else 1 for each in questions)
    if asked > most:
        raise ValidationError(f"limits.behaviors: at most {most} questions and options", param=fields[1], limit=most,
                              actual=asked)  # fmt: skip
    return ScoreCall(model=model, span=span, questions=questions, terms=await visit.terms(), fields=fields,
                     is_state=True, named=named, size=size)  # fmt: skip
