"""The inside of `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, character by character.

The arguments are given out as they stand, so that a client sees them grow; what stands before the name waits for it.
A state machine without recursion: depth costs nothing.
"""

import json
from typing import Literal

from mainspring.text.reply.deltas import CallArguments, CallBegun, Delta

SPACE = " \t\r\n"
State = Literal["open", "key", "in_key", "colon", "value", "in_value", "closed", "broken"]
_ARGUMENTS = ("arguments", "parameters")


class JsonCall:
    """`closed`: the object is complete. `broken`: this is no call in this format, from the character on that was
    looked at last."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.name: str | None = None
        self.state: State = "open"
        self._key = self._value = ""
        self._waiting: str | None = None
        self._streams = self._sent = False
        self._depth = 0
        self._in_string = self._escaped = False

    def push(self, text: str) -> tuple[int, list[Delta]]:
        """(characters taken, what became sure): less than all where `closed` or `broken`."""
        out: list[Delta] = []
        for at, char in enumerate(text):
            if self.state in ("closed", "broken"):
                return at, out
            self._take(char, out)
        return len(text), out

    def end(self) -> list[Delta]:
        """What a complete call still lacks: arguments where it gave none."""
        return [] if self._sent or self.name is None else [self._arguments("{}")]

    def _take(self, char: str, out: list[Delta]) -> None:
        if self.state == "in_value":
            self._in_value(char, out)
        elif self.state == "in_key":
            self._in_key(char)
        elif char in SPACE:
            return
        elif self.state == "open" and char == "{":
            self.state = "key"
        elif self.state == "key" and char in ',"}':
            if char == '"':
                self.state, self._key, self._escaped = "in_key", "", False
            elif char == "}":
                self.state = "closed" if self.name is not None else "broken"
        elif self.state == "colon" and char == ":":
            self.state = "value"
        elif self.state == "value" and char not in ",}]":
            self._begin_value(char, out)
        else:
            self.state = "broken"

    def _in_key(self, char: str) -> None:
        if char == '"' and not self._escaped:
            self.state = "colon"
            return
        self._escaped = char == "\\" and not self._escaped
        self._key += char

    def _begin_value(self, char: str, out: list[Delta]) -> None:
        self.state, self._value, self._depth = "in_value", "", 0
        self._in_string = self._escaped = False
        self._streams = self._key in _ARGUMENTS and char == "{" and self.name is not None and not self._sent
        self._in_value(char, out)

    def _in_value(self, char: str, out: list[Delta]) -> None:
        if not self._in_string and self._depth == 0 and self._value and (char in ",}" or char in SPACE):
            self._end_value(out)  # of a number or a word: what follows it is not its own
            self._take(char, out)
            return
        self._value += char
        if self._streams:
            self._sent = True
            out.append(self._arguments(char))
        if self._in_string:
            self._in_string = char != '"' or self._escaped
            self._escaped = char == "\\" and not self._escaped
            complete = not self._in_string and self._depth == 0
        else:
            self._in_string = char == '"'
            self._depth += (char in "{[") - (char in "}]")
            complete = char in "}]" and self._depth == 0
        if complete:
            self._end_value(out)

    def _end_value(self, out: list[Delta]) -> None:
        self.state = "key"
        if self._streams:
            self._streams = False
            return
        if self._key not in ("name", *_ARGUMENTS):
            return
        try:
            value = json.loads(self._value, strict=False)
        except (ValueError, RecursionError):
            value = None if self._key == "name" else self._value
        if self._key == "name":
            self._named(value, out)
        elif value is not None and not self._sent:
            self._waiting = value if isinstance(value, str) else self._value
            self._give(out)

    def _named(self, value: object, out: list[Delta]) -> None:
        if not isinstance(value, str) or not value or self.name is not None:
            self.state = "broken"
            return
        self.name = value
        out.append(CallBegun(self.index, value))
        self._give(out)

    def _give(self, out: list[Delta]) -> None:
        if self.name is not None and self._waiting is not None:
            out.append(self._arguments(self._waiting))
            self._waiting, self._sent = None, True

    def _arguments(self, text: str) -> CallArguments:
        return CallArguments(self.index, text)
