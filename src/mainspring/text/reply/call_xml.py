"""The inside of `<tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>`, as it comes.

Values are plain text between one line break on each side; the tool's schema says whether one is a string (given out
while it grows) or other JSON (given out when it is whole; what does not parse is a string after all).
"""

import json
from collections.abc import Mapping
from typing import Any, Literal

from mainspring.text.reply.deltas import CallArguments, CallBegun, Delta
from mainspring.text.reply.tags import unsure

FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
Schemas = Mapping[str, Any]
"""JSON schemas of parameters by the tool's name."""
State = Literal["function", "between", "value", "closed", "broken"]
_WORDS = {"True": "true", "False": "false", "None": "null"}
_KINDS = {"string": str, "boolean": bool, "array": list, "object": dict, "null": type(None)}


class XmlCall:
    """`closed` and `broken` as for JSON; `name` is set with the first delta."""

    def __init__(self, index: int, schemas: Schemas) -> None:
        self.index, self._schemas = index, schemas
        self.name: str | None = None
        self.state: State = "function"
        self._buffer = ""
        self._kinds: frozenset[str] = frozenset()
        self._parameters = 0
        self._opened = self._began = False

    def push(self, text: str) -> tuple[int, list[Delta]]:
        """(characters taken, what became sure)."""
        out: list[Delta] = []
        self._buffer += text
        while self.state not in ("closed", "broken") and self._step(out):
            pass
        if self.state not in ("closed", "broken"):
            return len(text), out
        left, self._buffer = self._buffer, ""
        return max(0, len(text) - len(left)), out

    def end(self) -> list[Delta]:
        return []

    def _step(self, out: list[Delta]) -> bool:
        if self.state == "function":
            return self._function(out)
        return self._between(out) if self.state == "between" else self._value(out)

    def _function(self, out: list[Delta]) -> bool:
        name = self._named(FUNCTION)
        if name is None:
            return False
        self.name, self.state = name, "between"
        out.append(CallBegun(self.index, name))
        return True

    def _between(self, out: list[Delta]) -> bool:
        self._buffer = self._buffer.lstrip()
        if self._buffer.startswith(FUNCTION_END):
            self._buffer = self._buffer[len(FUNCTION_END) :]
            out.append(CallArguments(self.index, "}" if self._parameters else "{}"))
            self.state = "closed"
            return False
        if FUNCTION_END.startswith(self._buffer):
            return False
        key = self._named(PARAMETER)
        if key is None:
            return False
        self._kinds = self._allowed(key)
        start = "{" if not self._parameters else ", "
        out.append(CallArguments(self.index, f"{start}{json.dumps(key, ensure_ascii=False)}: "))
        self._parameters += 1
        self.state, self._opened, self._began = "value", False, False
        return True

    def _named(self, tag: str) -> str | None:
        """The name in `<tag=NAME>` that the buffer begins with; None where more is needed, or all is broken."""
        text = self._buffer.lstrip()
        if not text.startswith(tag):
            if not tag.startswith(text):
                self.state = "broken"
            return None
        name, closed, rest = text[len(tag) :].partition(">")
        if not closed:
            if "\n" in name or "<" in name:
                self.state = "broken"
            return None
        if not name.strip():
            self.state = "broken"
            return None
        self._buffer = rest
        return name.strip()

    def _value(self, out: list[Delta]) -> bool:
        if not self._opened:
            if not self._buffer:
                return False
            self._buffer = self._buffer.removeprefix("\n")
            self._opened = True
        text, found, rest = self._buffer.partition(PARAMETER_END)
        if found:
            self._buffer, self.state = rest, "between"
            text = text.removesuffix("\n")
            out.append(self._piece(text, last=True))
            return True
        if not self._is_text():
            return False
        # A line break before the end tag is the format's.
        keep = unsure(text, ("\n" + PARAMETER_END, PARAMETER_END))
        sure, self._buffer = text[: len(text) - keep], text[len(text) - keep :]
        if sure:
            out.append(self._piece(sure, last=False))
        return False

    def _piece(self, text: str, *, last: bool) -> CallArguments:
        if not self._is_text():
            return CallArguments(self.index, self._json(text))
        start = "" if self._began else '"'
        self._began = True
        return CallArguments(self.index, start + json.dumps(text, ensure_ascii=False)[1:-1] + ('"' if last else ""))

    def _is_text(self) -> bool:
        return self._kinds <= {"string"}

    def _json(self, text: str) -> str:
        plain = text.strip()
        plain = _WORDS.get(plain, plain)
        try:
            value = json.loads(plain, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return json.dumps(text, ensure_ascii=False)
        return plain if _is_a(value, self._kinds) else json.dumps(text, ensure_ascii=False)

    def _allowed(self, key: str) -> frozenset[str]:
        """Type names that the schema allows for a parameter; none where it says nothing."""
        schema = self._schemas.get(self.name or "")
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        return _types(properties.get(key)) if isinstance(properties, Mapping) else frozenset()


def _types(schema: Any, depth: int = 4) -> frozenset[str]:
    if not isinstance(schema, Mapping) or not depth:
        return frozenset()
    said = schema.get("type")
    found = {said} if isinstance(said, str) else {each for each in said or () if isinstance(each, str)}
    for key in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(key) or ():
            found |= _types(each, depth - 1)
    if not found and isinstance(schema.get("enum"), list):
        found = {name for name in (*_KINDS, "number") if any(_is_a(each, {name}) for each in schema["enum"])}
    return frozenset(found)


def _is_a(value: Any, kinds: set[str] | frozenset[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in kinds
    if isinstance(value, int | float):
        return "number" in kinds or ("integer" in kinds and float(value).is_integer())
    return any(name in kinds and isinstance(value, kind) for name, kind in _KINDS.items())


def _refuse(literal: str) -> Any:
    raise ValueError(literal)
