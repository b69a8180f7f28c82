"""A span in the making: what every reader fills in, and the notes it owes for whatever it leaves out.

A reader names the keys it used; `unread` notes the others, so that a key nobody thought of is reported and never lost
in silence. Notes are grouped by the place they stand for: one note for the `id` of five hundred messages.
Paths are those of the source: `messages[3].content[0].text`, and `gen_ai.prompt.3.content` where keys are flattened.
"""

import json
import math
import re
from collections.abc import Container, Iterable, Iterator
from itertools import chain
from typing import Literal

from mainspring.errors import MalformedError, SpanError, TooLargeError
from mainspring.text.span import Json, Message, Note, ReadSpan, Span, ToolDefinition

MAX_DEPTH = 128  # levels of nesting; well below what the decoders and encoders of JSON recurse through
_KEYS_NAMED = 60
_KEY_CHARACTERS = 80
_MAX_INT_DIGITS = 4300  # CPython refuses to convert longer ones
_SURROGATE = re.compile("[\ud800-\udfff]")
_ORDINAL = re.compile(r"\[\d+\]|\.\d+(?=\.|$)")


class Reading:
    """Mutable on purpose, one per span: fields of the span, its notes, and at the end `done()`."""

    def __init__(self, name: str, root: str = "") -> None:
        self.format = name
        self.root = root
        self.input: list[Message] = []
        self.output: list[Message] = []
        self.tools: list[ToolDefinition] = []
        self.model: str | None = None
        self.finish_reason: str | None = None
        self._notes: list[Note] = []
        self._unread: dict[str, tuple[list[str], dict[str, None]]] = {}

    def note(self, kind: Literal["not_rendered", "placeholder", "replaced", "moved"], where: str, detail: str) -> None:
        self._notes.append(Note(kind, where, detail))

    def unread(self, mapping: dict[str, Json], where: str, used: Container[str] = ()) -> None:
        """Note every key outside `used` that carries something."""
        keys = [key for key, value in mapping.items() if key not in used and not _is_empty(value)]
        if keys:
            places, names = self._unread.setdefault(_ORDINAL.sub(_starred, where), ([], {}))
            places.append(where)
            names.update(dict.fromkeys(keys))

    def answer(self, turns: list[Message], where: str) -> None:
        """Take what the call returned. Assistant messages side by side are choices.

        With other roles among them they are a run (an agent's state): its last assistant message is the output and the
        turns before it are input. A run that repeats the input first says it once.
        """
        if all(turn.role == "assistant" for turn in turns):
            self.output += turns
            return
        if self.input and turns[: len(self.input)] == self.input:
            turns = turns[len(self.input) :]
        last = max((i for i, turn in enumerate(turns) if turn.role == "assistant"), default=None)
        if last is None and any(turn.role != "tool" for turn in turns):
            raise SpanError("span output must be an assistant message", param=where)
        if last is None:
            self.input += turns
            self.note("moved", where, "tool results without a word of the assistant count as input")
            return
        before, after = turns[:last], len(turns) - last - 1
        if before and self.output:
            self.note("not_rendered", where, f"{last} turns inside a further choice")
        elif before:
            self.input += before
            self.note("moved", where, f"{last} turns before the last assistant message count as input")
        if after:
            self.note("not_rendered", where, f"{after} turns after the last assistant message")
        self.output.append(turns[last])

    def split_answer(self) -> None:
        """A conversation without a separate answer: its last message is the output if the assistant wrote it."""
        if not self.output and self.input and self.input[-1].role == "assistant":
            self.output.append(self.input.pop())

    def done(self, *, needs_input: bool = True) -> ReadSpan:
        if needs_input and not self.input:
            raise SpanError("the input holds no message", param=self.root or None)
        span = Span(tuple(self.input), tuple(self.output), tuple(self.tools), self.model, self.finish_reason)
        return ReadSpan(span, self.format, tuple(self._notes) + tuple(self._grouped()))

    def _grouped(self) -> Iterator[Note]:
        for pattern, (places, names) in self._unread.items():
            listed = ", ".join(name[:_KEY_CHARACTERS] for name in list(names)[:_KEYS_NAMED])
            more = f" and {len(names) - _KEYS_NAMED} more" if len(names) > _KEYS_NAMED else ""
            times = f" ({len(places)} places)" if len(places) > 1 else ""
            yield Note("not_rendered", places[0] if len(places) == 1 else pattern, f"{listed}{more}{times}")


def _starred(match: re.Match[str]) -> str:
    return "[*]" if match[0][0] == "[" else ".*"


def _is_empty(value: Json) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)


def join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def entries(value: Json, where: str) -> list[tuple[str, Json]]:
    """Path and value of each element: of a list, of a mapping keyed by ordinals, of a lone value in a list's place."""
    if value is None:
        return []
    if isinstance(value, list):
        return [(f"{where}[{i}]", element) for i, element in enumerate(value)]
    if isinstance(value, dict) and value and all(_is_ordinal(key) for key in value):
        return [(join(where, key), value[key]) for key in sorted(value, key=int)]
    return [(where, value)]


def _is_ordinal(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) < 10


def first(mapping: dict[str, Json], *keys: str) -> Json:
    """The first of these that is there and not null."""
    return next((mapping[key] for key in keys if mapping.get(key) is not None), None)


def label(*candidates: Json) -> str | None:
    """The first non-empty string: a name, an id, a reason."""
    return next((value for value in candidates if isinstance(value, str) and value), None)


def compact(value: Json) -> str:
    """JSON without spaces, for what has to be shown as text; a string stays itself."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def decoded(r: Reading, value: Json, where: str) -> Json:
    """The JSON inside a string, however often it was encoded; any other value, and text that is no JSON, unchanged."""
    inner = value
    for _ in range(3):
        if not isinstance(inner, str) or inner.lstrip()[:1] not in ("{", "[", '"'):
            break
        try:
            inner = clean(r, loads(inner), where)
        except (ValueError, RecursionError, TooLargeError):
            break
    return inner if isinstance(inner, dict | list) else value


def container(r: Reading, value: Json, where: str) -> Json:
    """`decoded` for what can only be JSON when it starts like JSON: an attribute cut at a length limit is an error."""
    value = decoded(r, value, where)
    if isinstance(value, str) and value.lstrip()[:2] in ("[{", '{"', "[]", "[ "):
        raise SpanError("broken JSON, perhaps cut at an attribute length limit", param=where)
    return value


def loads(text: str) -> Json:
    """Lenient JSON: NaN, Infinity and numbers that no float or int holds stay as their literals, in strings."""
    return json.loads(text, parse_constant=str, parse_float=_float, parse_int=_int)


def _float(literal: str) -> float | str:
    number = float(literal)
    return number if math.isfinite(number) else literal


def _int(literal: str) -> int | str:
    return int(literal) if len(literal) <= _MAX_INT_DIGITS else literal


def has_lone_surrogates(text: str) -> bool:
    return not text.isascii() and _SURROGATE.search(text) is not None


def clean(r: Reading, data: Json, where: str = "", max_depth: int = MAX_DEPTH) -> Json:
    """`data` fit for all that follows: bounded depth, JSON types only, no lone surrogates, no non-finite numbers."""
    return _cleaned(r, data, where) if _is_dirty(data, max_depth) else data


def _is_dirty(data: Json, max_depth: int) -> bool:
    """Strings first, then what holds them: they are most of what there is. The rest may be a subclass."""
    dirty = False
    stack: list[tuple[Json, int]] = [([data], -1)]
    while stack:
        container, depth = stack.pop()
        if depth >= max_depth:
            raise TooLargeError(f"nested more than {max_depth} levels deep", limit=max_depth, actual=depth + 1)
        values: Iterable[Json] = container
        if isinstance(container, dict):
            values = chain(container, container.values())
        for value in values:
            kind = type(value)
            if kind is str:
                if not value.isascii() and _SURROGATE.search(value):
                    dirty = True
            elif kind is dict or kind is list:
                stack.append((value, depth + 1))
            elif isinstance(value, str):
                dirty |= _SURROGATE.search(value) is not None
            elif isinstance(value, dict | list | tuple):
                dirty |= isinstance(value, tuple)
                stack.append((value, depth + 1))
            elif isinstance(value, float):
                dirty |= not math.isfinite(value)
            elif isinstance(value, int) and not isinstance(value, bool):
                dirty |= value.bit_length() > _MAX_INT_DIGITS * 3
            elif value is not None and not isinstance(value, bool):
                raise MalformedError(f"not a JSON value: {type(value).__name__}")
    return dirty


def _cleaned(r: Reading, value: Json, where: str) -> Json:
    if isinstance(value, str):
        return _paired(r, value, where)
    if isinstance(value, dict):
        return {_paired(r, str(k), where): _cleaned(r, v, join(where, str(k))) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(r, inner, f"{where}[{i}]") for i, inner in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        r.note("replaced", where, "a number that is not finite, by its name")
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and value.bit_length() > _MAX_INT_DIGITS * 3:
        r.note("replaced", where, "an integer too long to print, by its hexadecimal form")
        return hex(value)
    return value


def _paired(r: Reading, text: str, where: str) -> str:
    if not has_lone_surrogates(text):
        return text
    fixed = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    count = fixed.count("\ufffd") - text.count("\ufffd")
    if count:
        where = _SURROGATE.sub("\ufffd", where)
        r.note("replaced", where, f"{count} lone surrogate{'s' if count > 1 else ''} by U+FFFD")
    return fixed
