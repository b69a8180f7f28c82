"""Tags in a text that comes in pieces."""

from collections.abc import Sequence

THINK, THINK_END = "<think>", "</think>"
CALL, CALL_END = "<tool_call>", "</tool_call>"


def unsure(text: str, tags: Sequence[str]) -> int:
    """How many of the last characters may be the beginning of a tag: they have to wait."""
    longest = max((len(tag) for tag in tags), default=1)
    for size in range(min(longest - 1, len(text)), 0, -1):
        tail = text[len(text) - size :]
        if any(tag.startswith(tail) for tag in tags):
            return size
    return 0
