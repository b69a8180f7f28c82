"""What is asked about a span: behaviors (present, absent, not observable), yes or no, a choice among options.

A question is text in the bundle's template for its kind; its answers are words of one token each, read at the last
token of the branch. Definitions are users' text and never become control.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from msgspec import Struct

from mainspring.errors import BehaviorError

Kind = Literal["behavior", "yes_no", "choice"]
KINDS: tuple[Kind, ...] = ("behavior", "yes_no", "choice")
MIN_DEFINITION_CHARS = 3
MAX_DEFINITION_CHARS = 20_000
MAX_OPTIONS = 255


class Behavior(Struct, frozen=True):
    """`id` is the caller's and comes back with the result; the model sees the definition alone."""

    id: str
    definition: str

    kind: ClassVar[Kind] = "behavior"
    labels: ClassVar[tuple[str, ...]] = ("present", "absent", "not_observable")


class YesNo(Struct, frozen=True):
    """A question that is answered yes or no; `yes` and `no` say when, where the caller tells."""

    id: str
    text: str
    yes: str | None = None
    no: str | None = None

    kind: ClassVar[Kind] = "yes_no"
    labels: ClassVar[tuple[str, ...]] = ("yes", "no")


class Choice(Struct, frozen=True):
    """A question that has one of up to 255 options for an answer."""

    id: str
    text: str
    options: tuple[str, ...]

    kind: ClassVar[Kind] = "choice"

    @property
    def labels(self) -> tuple[str, ...]:
        return self.options


Question = Behavior | YesNo | Choice


def read_behaviors(
    items: Sequence[Behavior | str | Mapping[str, Any]],
    *,
    max_chars: int = MAX_DEFINITION_CHARS,
    param: str = "behaviors",
) -> tuple[Behavior, ...]:
    """Checked behaviors from records, `{id, definition}` mappings or plain definitions (which are their own ids).

    BehaviorError names the first at fault as `behaviors[i].definition` or `behaviors[i].id`.
    """
    if isinstance(items, str | Mapping) or not isinstance(items, Sequence):
        raise BehaviorError("a list of behaviors is needed", param=param)
    if not items:
        raise BehaviorError("at least one behavior is needed", param=param)
    seen: dict[str, int] = {}
    behaviors = []
    for index, item in enumerate(items):
        behavior = _behavior(item, f"{param}[{index}]")
        check_text(behavior.definition, f"{param}[{index}].definition", max_chars)
        if (first := seen.setdefault(behavior.id, index)) != index:
            raise BehaviorError(f"the id is that of {param}[{first}] already", param=f"{param}[{index}].id")
        behaviors.append(behavior)
    return tuple(behaviors)


def _behavior(item: Behavior | str | Mapping[str, Any], where: str) -> Behavior:
    if isinstance(item, Behavior):
        return item
    if isinstance(item, str):
        return Behavior(item, item)
    if not isinstance(item, Mapping):
        raise BehaviorError("an object with `id` and `definition` is needed", param=where)
    for key in ("definition", "id"):
        if not isinstance(item.get(key), str):
            raise BehaviorError("a string is needed", param=f"{where}.{key}")
    if unknown := sorted(str(key) for key in item if key not in ("id", "definition")):
        raise BehaviorError(f"unknown fields {[key[:40] for key in unknown[:5]]}", param=where)
    return Behavior(item["id"], item["definition"])


def check_text(text: str, param: str, max_chars: int = MAX_DEFINITION_CHARS) -> None:
    length = len(text.strip())
    if length < MIN_DEFINITION_CHARS:
        raise BehaviorError(f"{length} characters, at least {MIN_DEFINITION_CHARS} are needed", param=param)
    if len(text) > max_chars:
        raise BehaviorError(f"{len(text):,} characters, the limit is {max_chars:,}", param=param)


def check_question(question: Question, *, max_chars: int = MAX_DEFINITION_CHARS) -> None:
    """BehaviorError where the question can't be asked."""
    if isinstance(question, Behavior):
        check_text(question.definition, "definition", max_chars)
        return
    check_text(question.text, "text", max_chars)
    if isinstance(question, Choice):
        count = len(question.options)
        if not 2 <= count <= MAX_OPTIONS:
            raise BehaviorError(f"{count} options, from 2 to {MAX_OPTIONS} are possible", param="options")
        for index, option in enumerate(question.options):
            if not option.strip():
                raise BehaviorError("an option needs some text", param=f"options[{index}]")
            if len(option) > max_chars:
                raise BehaviorError(
                    f"{len(option):,} characters, the limit is {max_chars:,}", param=f"options[{index}]"
                )
        if len(set(question.options)) != count:
            raise BehaviorError("two options are the same", param="options")
