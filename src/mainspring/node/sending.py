"""Bundles on their way out: pieces of 256 KiB, taking turns, while the link's backlog is low."""

from collections.abc import Iterator

from mainspring.wire import messages as m
from mainspring.wire.records import KIB
from mainspring.wire.transport import HIGH_BYTES

PIECE_BYTES = 256 * KIB
READERS = 8
"""Fetches served at once; a router needs one."""


class BundleSender:
    """`packed` are the bytes of the one bundle there is, `bundle` its hash, `sha256` that of the bytes."""

    def __init__(self, packed: bytes, bundle: str, sha256: str) -> None:
        self._packed, self._bundle = packed, bundle
        self._sha256 = sha256
        self._at: dict[int, int] = {}
        self._refused: list[int] = []

    def asked(self, stream: int, bundle: str) -> None:
        if bundle == self._bundle and len(self._at) < READERS:
            self._at[stream] = 0
        else:
            self._refused.append(stream)

    def pieces(self, backlog_bytes: int) -> Iterator[tuple[int, m.Message]]:
        """(stream, message) to send now; ask again when the backlog has fallen."""
        while self._refused:
            yield self._refused.pop(), m.BundleEnd(found=False)
        room = HIGH_BYTES - backlog_bytes
        while self._at and room > 0:
            stream, at = next(iter(self._at.items()))
            piece = self._packed[at : at + PIECE_BYTES]
            del self._at[stream]  # to the end of the line
            yield stream, m.BundleData(data=piece)
            room -= len(piece)
            if at + len(piece) < len(self._packed):
                self._at[stream] = at + len(piece)
            else:
                yield stream, m.BundleEnd(found=True, size=len(self._packed), sha256=self._sha256)

    def clear(self) -> None:
        self._at.clear()
        self._refused.clear()
