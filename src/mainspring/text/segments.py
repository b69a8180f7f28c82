"""Token ids of texts that came before: a chat that goes on repeats all of its earlier turns.

A text between two control tokens is encoded by itself, so its ids do not depend on what stands around it. Entries are
kept apart by `salt`: who asks can't learn, from how fast an answer comes, what somebody else asked. Bounded in bytes,
least recently used dropped first. Threads may share one.
"""

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from mainspring.text.fast import Ids

LEAST_CHARS = 48
"""Shorter texts are encoded faster than looked up and kept."""
ENTRY_BYTES = 256
"""What an entry costs beside text and ids."""


class SegmentCache:
    """`max_bytes` 0 keeps nothing. `hits` and `misses` count characters."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[tuple[bytes, str], Ids] = OrderedDict()
        self._lock = Lock()
        self.bytes = self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, salt: bytes, texts: Sequence[str]) -> dict[str, Ids]:
        """Those of `texts` whose ids are kept."""
        found: dict[str, Ids] = {}
        with self._lock:
            kept = self._kept
            for text in texts:
                if len(text) < LEAST_CHARS:
                    continue
                ids = kept.get((salt, text))
                if ids is None:
                    self.misses += len(text)
                else:
                    kept.move_to_end((salt, text))
                    found[text] = ids
                    self.hits += len(text)
        return found

    def keep(self, salt: bytes, texts: Sequence[str], ids: Sequence[Ids]) -> None:
        """Nothing that would fill more than a sixteenth of the cache."""
        with self._lock:
            for text, tokens in zip(texts, ids, strict=True):
                size = _size(text, tokens)
                if len(text) < LEAST_CHARS or size > self._max_bytes // 16 or (salt, text) in self._kept:
                    continue
                # A copy: slices of one large array would keep all of it.
                self._kept[salt, text] = tokens.copy()
                self.bytes += size
            while self.bytes > self._max_bytes:
                (_, text), tokens = self._kept.popitem(last=False)
                self.bytes -= _size(text, tokens)


def _size(text: str, tokens: Ids) -> int:
    return (
        4 * len(text) + tokens.nbytes + ENTRY_BYTES if not text.isascii() else len(text) + tokens.nbytes + ENTRY_BYTES
    )
