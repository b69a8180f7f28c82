"""Parts that share the view of another one of their pass fail with it. Pure."""

from collections.abc import Collection, Sequence


def with_dependants(parents: Sequence[int], lost: Collection[int]) -> set[int]:
    """`lost`, and whatever has one of them for a parent; parents come first."""
    gone = set(lost)
    for index, parent in enumerate(parents):
        if parent in gone:
            gone.add(index)
    return gone
