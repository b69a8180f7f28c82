"""What a span shows, taken from it once: the raw material of every rule."""

import json
import re
from dataclasses import dataclass
from functools import cached_property

from mainspring.text.span import Message, Reasoning, Span, Text, ToolCall, ToolResult

_UNFINISHED = re.compile(
    r"(?:^|\s)\d+[.)]$|\b(?:Mr|Mrs|Ms|Dr|St|vs|[A-Z])\.$|^\s*(?:\d+[.)]|[-*•#])\s|[;{}]\s*$", re.MULTILINE
)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class Facts:
    """Texts by role; `reply` is the output's text, `earlier` the assistant's turns before it."""

    span: Span

    @cached_property
    def reply(self) -> str:
        return self.span.output[0].text if self.span.output else ""

    def _texts(self, role: str) -> list[str]:
        return [message.text for message in self.span.input if message.role == role and message.text]

    @cached_property
    def users(self) -> list[str]:
        return self._texts("user")

    @cached_property
    def earlier(self) -> list[str]:
        return self._texts("assistant")

    @cached_property
    def system(self) -> str:
        return "\n".join(self._texts("system"))

    @cached_property
    def calls(self) -> list[ToolCall]:
        return [part for message in self._messages for part in message.parts if isinstance(part, ToolCall)]

    @cached_property
    def output_calls(self) -> list[ToolCall]:
        return [part for message in self.span.output[:1] for part in message.parts if isinstance(part, ToolCall)]

    @cached_property
    def results(self) -> list[str]:
        return [
            text(part.content) for message in self._messages for part in message.parts if isinstance(part, ToolResult)
        ]

    @cached_property
    def _messages(self) -> tuple[Message, ...]:
        return (*self.span.input, *self.span.output[:1])

    @cached_property
    def before(self) -> str:
        """Everything ahead of the output, as one text."""
        parts = [part for message in self.span.input for part in message.parts]
        return "\n".join(_shown(part) for part in parts)

    @cached_property
    def words(self) -> int:
        return len(self.reply.split())

    @cached_property
    def sentences(self) -> list[str]:
        return sentences(self.reply)

    @cached_property
    def shows(self) -> frozenset[str]:
        """The conditions that behaviors may need."""
        holds = {
            "reply": bool(self.reply.strip() or self.output_calls),
            "text": bool(self.reply.strip()),
            "user": bool(self.users),
            "tools": bool(self.span.tools or self.calls),
            "calls": bool(self.calls),
            "results": bool(self.results),
            "earlier": bool(self.earlier),
            "later_user": bool(self.earlier) and len(self.users) > 1,
            "two_users": len(self.users) > 1,
            "system": bool(self.system),
        }
        return frozenset(name for name, value in holds.items() if value)


def _shown(part: object) -> str:
    if isinstance(part, Text | Reasoning):
        return part.text
    if isinstance(part, ToolResult):
        return text(part.content)
    return f"{part.name} {text(part.arguments)}" if isinstance(part, ToolCall) else ""


def text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def sentences(reply: str) -> list[str]:
    return [piece for piece in re.split(r"(?<=[.!?])\s+|\n+", reply) if piece.strip()]


def beginning(reply: str, count: int) -> str | None:
    """Its first sentences as they stand; None of lists and code, and where they stop at a heading or an abbreviation."""
    end = 0
    for sentence in sentences(reply)[:count]:
        end = reply.index(sentence, end) + len(sentence)
    start = reply[:end].strip()
    whole = start[:1].isalpha() and start.endswith((".", "!", "?")) and not _UNFINISHED.search(start)
    return start if whole and "```" not in reply else None


def numbers(value: str) -> set[str]:
    """Figures of two digits or more: single ones stand in every list."""
    return {number.replace(",", "") for number in NUMBER.findall(value) if len(number) > 1}
