"""The plainest of spans, and nearly every one that comes: `{input: [messages], output: message}`, each message a role
and a text that can't be JSON. Read at once as the readers of formats would, which ask a dozen questions first.
"""

from collections.abc import Sequence

from mainspring.text.formats._messages import plainly_said
from mainspring.text.formats._reading import has_lone_surrogates
from mainspring.text.span import Json, Message, ReadSpan, Span

_FIELDS = frozenset({"input", "output"})
_FORMAT = "span-01"


def read_plain(data: Json) -> ReadSpan | None:
    """None for whatever is not such a span."""
    if type(data) is not dict or data.keys() != _FIELDS:
        return None
    asked, said = data["input"], data["output"]
    if type(asked) is not list or not asked:
        return None
    messages = _said(asked)
    answer = _said((said,))
    if messages is None or answer is None or answer[0].role != "assistant":
        return None
    return ReadSpan(Span(messages, answer), _FORMAT)


def _said(values: Sequence[Json]) -> tuple[Message, ...] | None:
    found: list[Message] = []
    for value in values:
        message = plainly_said(value)
        if message is None or has_lone_surrogates(value["content"]):
            return None
        found.append(message)
    return tuple(found)
