"""Token ids of texts that came before: a chat that goes on repeats all of its earlier turns.

A text between two control tokens is encoded by itself, so its ids do not depend on what stands around it. Entries are
kept apart by `salt`: who asks can't learn, from how fast an answer comes, what somebody else asked. Bounded in bytes,
least recently used dropped first. Threads may share one.

A hash table whose entries come and go is built anew, beside the old one, each time its rows are used up. For all of 64
MiB that took 4 MB at a time, at another place of the heap each time, and the process grew (docs/performance.md). So a
cache is several small ones, each with the texts whose hash says so: a table takes 0.2 MB, and fits where another was.
"""

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from mainspring.text.fast import Ids

LEAST_CHARS = 48
"""Shorter texts are encoded faster than looked up and kept."""
ENTRY_BYTES = 480
"""What an entry costs beside text and ids: key, array, their heads in the heap, its share of a table. 450 to 490 were
measured (CPython 3.11, glibc)."""
PART_BYTES = 4 << 20
"""Of a large cache, which is several of this size."""


class _Part:
    """Least recently used first."""

    __slots__ = ("bytes", "kept")

    def __init__(self) -> None:
        self.kept: OrderedDict[tuple[bytes, str], Ids] = OrderedDict()
        self.bytes = 0


class SegmentCache:
    """`max_bytes` 0 keeps nothing. `hits` and `misses` count characters."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._parts = [_Part() for _ in range(max(1, max_bytes // PART_BYTES))]
        self._part_bytes = max_bytes // len(self._parts)
        self._most = min(max_bytes // 16, self._part_bytes)
        self._lock = Lock()
        self.bytes = self.hits = self.misses = 0

    def __len__(self) -> int:
        return sum(len(part.kept) for part in self._parts)

    def find(self, salt: bytes, texts: Sequence[str]) -> dict[str, Ids]:
        """Those of `texts` whose ids are kept."""
        found: dict[str, Ids] = {}
        hits = misses = 0
        with self._lock:
            parts, count = self._parts, len(self._parts)
            for text in texts:
                if len(text) < LEAST_CHARS:
                    continue
                key, kept = (salt, text), parts[hash(text) % count].kept
                ids = kept.get(key)
                if ids is None:
                    misses += len(text)
                else:
                    kept.move_to_end(key)
                    found[text] = ids
                    hits += len(text)
            self.hits += hits
            self.misses += misses
        return found

    def keep(self, salt: bytes, texts: Sequence[str], ids: Sequence[Ids]) -> None:
        """Nothing that would fill more than a sixteenth of the cache, or a part of it."""
        with self._lock:
            parts = self._parts
            for text, tokens in zip(texts, ids, strict=True):
                size = _size(text, tokens)
                if len(text) < LEAST_CHARS or size > self._most:
                    continue
                key, part = (salt, text), parts[hash(text) % len(parts)]
                if key in part.kept:
                    continue
                # A copy: slices of one large array would keep all of it.
                part.kept[key] = tokens.copy()
                part.bytes += size
                self.bytes += size
                while part.bytes > self._part_bytes:
                    (_, old), its = part.kept.popitem(last=False)
                    size = _size(old, its)
                    part.bytes -= size
                    self.bytes -= size


def _size(text: str, tokens: Ids) -> int:
    return (len(text) if text.isascii() else 4 * len(text)) + tokens.nbytes + ENTRY_BYTES
