"""Text of a reply -> reasoning, content and tool calls, as it comes.

Nothing is lost: what looks like a call and is none is given back as content. White space between content and a call,
and around reasoning, belongs to the format and to neither. Both formats of the family are read: JSON and functions
with parameters (`call_json`, `call_xml`); which one, the first character inside the tag says.
"""

from typing import Literal

from mainspring.text.reply.call_json import JsonCall
from mainspring.text.reply.call_xml import Schemas, XmlCall
from mainspring.text.reply.deltas import CallEnded, ContentText, Delta, ReasoningText, joined
from mainspring.text.reply.tags import CALL, CALL_END, THINK, THINK_END, unsure

Where = Literal["reasoning", "content", "call"]


class Parser:
    """`reasoning`: whether `<think>` is read; `inside`: the prompt has opened it already. `schemas`: of the tools,
    None where calls are not read. `given`: what the prompt has begun of the reply and is part of it."""

    def __init__(
        self, *, reasoning: bool = True, inside: bool = False, schemas: Schemas | None = None, given: str = ""
    ) -> None:
        self._reasoning, self._schemas = reasoning, schemas
        self.where: Where = "reasoning" if inside else "content"
        self._buffer = given
        self._space = ""
        self._fresh = True  # of this part nothing but white space has come
        self._parted = inside  # another part came before it
        self._call: JsonCall | XmlCall | None = None
        self._raw = ""
        self.calls = 0

    def push(self, text: str) -> list[Delta]:
        """What is sure now."""
        self._buffer += text
        out: list[Delta] = []
        while self._step(out):
            pass
        return joined(out)

    def finish(self) -> list[Delta]:
        """At the end of the reply: a call that was cut keeps what it has, everything else is text."""
        out: list[Delta] = []
        if self.where == "call":
            if self._call is None or self._call.name is None:
                self.where, self._fresh = "content", False
                self._text(out, CALL + self._raw + self._buffer)
        elif self._buffer:
            self._text(out, self._buffer)
        self._buffer = self._raw = ""
        if self._space and self.where == "content" and not (self._fresh and self._parted):
            out.append(ContentText(self._space))
        self._space = ""
        return joined(out)

    def _step(self, out: list[Delta]) -> bool:
        if self.where == "call":
            return self._in_call(out)
        tags = self._tags()
        at, tag = min(((at, tag) for tag in tags if (at := self._buffer.find(tag)) >= 0), default=(-1, ""))
        if at < 0:
            keep = unsure(self._buffer, tags)
            sure = self._buffer[: len(self._buffer) - keep]
            self._buffer = self._buffer[len(sure) :]
            self._text(out, sure)
            return False
        before, self._buffer = self._buffer[:at], self._buffer[at + len(tag) :]
        if tag == THINK and not (self._fresh and not before.strip()):
            self._text(out, before + tag)  # in the middle of content it is text
            return True
        self._text(out, before)
        self._turn(tag)
        return True

    def _tags(self) -> tuple[str, ...]:
        if self.where == "reasoning":  # one that opens again what the prompt has opened is no text
            return (THINK, THINK_END) if self._fresh else (THINK_END,)
        opening = (THINK,) if self._reasoning and self._fresh and not self.calls else ()
        return opening if self._schemas is None else (*opening, CALL)

    def _turn(self, tag: str) -> None:
        if tag == CALL:  # white space before it is kept until it proves to be one
            self.where, self._call, self._raw = "call", None, ""
            return
        self.where, self._space = ("reasoning" if tag == THINK else "content"), ""
        self._fresh = self._parted = True

    def _text(self, out: list[Delta], text: str) -> None:
        """White space before and after a part waits until it is known whether it stands between two."""
        if not text:
            return
        text, self._space = self._space + text, ""
        core = text.lstrip() if self._fresh else text
        if not core:
            self._space = text
            return
        if self._parted or self.where == "reasoning":
            text = core
        if self.where == "reasoning" or self._schemas is not None:
            core = text.rstrip()
            text, self._space = core, text[len(core) :]
        if text:
            out.append(ReasoningText(text) if self.where == "reasoning" else ContentText(text))
            self._fresh = False

    def _in_call(self, out: list[Delta]) -> bool:
        if self._call is None:
            start = self._buffer.lstrip()
            if not start:
                return False
            assert self._schemas is not None  # noqa: S101 - calls are read
            self._call = JsonCall(self.calls) if start[0] == "{" else XmlCall(self.calls, self._schemas)
        call = self._call
        if call.state not in ("closed", "broken"):
            taken, deltas = call.push(self._buffer)
            self._raw += self._buffer[:taken]
            self._buffer = self._buffer[taken:]
            out += deltas
            if call.state not in ("closed", "broken"):
                return False
        return self._after(call, out)

    def _after(self, call: "JsonCall | XmlCall", out: list[Delta]) -> bool:
        """Up to the end tag. What is no call at all becomes content."""
        before, found, rest = self._buffer.partition(CALL_END)
        if not found:
            return False
        self._buffer = rest
        self.where, self._call = "content", None
        if call.name is None:
            out.append(ContentText(self._space + CALL + self._raw + before + CALL_END))
            self._fresh = False
        else:
            out += [*call.end(), CallEnded(call.index)]
            self.calls += 1
            self._fresh = self._parted = True
        self._space = ""
        return True
