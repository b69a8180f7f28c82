"""What becomes sure of a reply with a few more tokens. Texts of one kind belong together as they follow each other."""

from msgspec import Struct


class ReasoningText(Struct, frozen=True, gc=False):
    text: str


class ContentText(Struct, frozen=True, gc=False):
    text: str


class CallBegun(Struct, frozen=True, gc=False):
    """`index` counts the calls of a reply from 0."""

    index: int
    name: str


class CallArguments(Struct, frozen=True, gc=False):
    """A stretch of the JSON text of a call's arguments; all of them are the whole object."""

    index: int
    text: str


class CallEnded(Struct, frozen=True, gc=False):
    """The call is complete. One that the reply's end cut short never gets this."""

    index: int


Delta = ReasoningText | ContentText | CallBegun | CallArguments | CallEnded


def joined(deltas: list[Delta]) -> list[Delta]:
    """Neighbours of one kind as one."""
    found: list[Delta] = []
    for delta in deltas:
        last = found[-1] if found else None
        if isinstance(delta, ContentText) and isinstance(last, ContentText):
            found[-1] = ContentText(last.text + delta.text)
        elif isinstance(delta, ReasoningText) and isinstance(last, ReasoningText):
            found[-1] = ReasoningText(last.text + delta.text)
        elif isinstance(delta, CallArguments) and isinstance(last, CallArguments) and last.index == delta.index:
            found[-1] = CallArguments(last.index, last.text + delta.text)
        else:
            found.append(delta)
    return found
