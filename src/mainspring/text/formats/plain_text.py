"""text: a transcript with `User:` and `Assistant:` at line starts, or the assistant's output as it stands.

It is a transcript if its first line that is not blank begins with a label; a label further down in a text that starts
without one may as well be what the assistant wrote. A turn runs to the next label; blank lines around it are dropped.
"""

import re

from mainspring.errors import SpanError
from mainspring.text.formats._messages import role_of
from mainspring.text.formats._reading import Reading
from mainspring.text.span import Json, Message, ReadSpan, Text, ToolResult

NAME = "text"
_LABEL = re.compile(r"^(system|developer|user|human|assistant|ai|bot|model|tool):[ \t]?", re.IGNORECASE | re.MULTILINE)


def matches(data: Json) -> bool:
    return isinstance(data, str)


def read(data: Json) -> ReadSpan:
    if not isinstance(data, str) or not data.strip():
        raise SpanError("no text")
    r = Reading(NAME)
    labels = list(_LABEL.finditer(data))
    if not labels or data[: labels[0].start()].strip():
        r.output.append(Message("assistant", (Text(data),)))
        return r.done(needs_input=False)
    ends = [match.start() for match in labels[1:]] + [len(data)]
    for match, end in zip(labels, ends, strict=True):
        text = data[match.end() : end].strip("\r\n")
        role = role_of(match[1], "")
        part = ToolResult(text) if role == "tool" else Text(text)
        r.input.append(Message(role, (part,) if text else ()))
    r.split_answer()
    return r.done(needs_input=False)
