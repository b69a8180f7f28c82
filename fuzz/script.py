"""Bytes read as decisions: the same input means the same under every engine, and any input means something."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Script:
    """Gives zeros when it is used up; `more` says whether it is."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def more(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        return self.take(1)[0]

    def below(self, n: int) -> int:
        return int.from_bytes(self.take(2), "little") % n

    def number(self) -> int:
        """Mostly small, sometimes on an edge."""
        edges = (0, 1, 2, 255, 4096, 65_535, (1 << 31) - 1, (1 << 32) - 1, (1 << 53), (1 << 63) - 1)
        pick = self.byte()
        return pick if pick < 200 else edges[pick % len(edges)]

    def one(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def take(self, n: int) -> bytes:
        piece = self._data[self._at : self._at + n]
        self._at += n
        return piece + bytes(n - len(piece))

    def blob(self, most: int) -> bytes:
        """As long as the script says and as it lasts."""
        size = self.below(most + 1)
        piece = self._data[self._at : self._at + size]
        self._at += size
        return piece
