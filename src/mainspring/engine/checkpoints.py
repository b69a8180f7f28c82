"""Kept views: key -> state handle, within a byte budget.

Evicted first is what saves least: rows that a hit saves, over bytes, aged by use (GreedyDual-Size: an entry's worth is
the floor at its last use plus rows / bytes; evicting raises the floor to the victim's worth). Entries in use are
pinned, an entry above the whole budget is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Entry:
    state: int
    rows: int
    nbytes: int
    worth: float
    pins: int = 0


class CheckpointStore:
    def __init__(self, budget_bytes: int, release: Callable[[int], None]) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self.hits = self.misses = self.evictions = 0
        self._release = release
        self._entries: dict[bytes, Entry] = {}
        self._floor = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries

    def acquire(self, key: bytes) -> int | None:
        """The state kept under `key`, pinned until `unpin`; None where there is none."""
        entry = self._entries.get(key)
        if entry is None:
            self.misses += 1
            return None
        self.hits += 1
        entry.worth = self._floor + entry.rows / max(entry.nbytes, 1)
        entry.pins += 1
        return entry.state

    def unpin(self, key: bytes) -> None:
        self._entries[key].pins -= 1

    def offer(self, key: bytes, state: int, *, rows: int, nbytes: int) -> bool:
        """Take over `state` if it fits, making room; else, or where the key is known, the caller still owns it."""
        if key in self._entries or not self._make_room(nbytes):
            return False
        self._entries[key] = Entry(state, rows, nbytes, self._floor + rows / max(nbytes, 1))
        self.used_bytes += nbytes
        return True

    def clear(self) -> None:
        for key in [key for key, entry in self._entries.items() if not entry.pins]:
            self._drop(key)

    def _make_room(self, nbytes: int) -> bool:
        free = self.budget_bytes - self.used_bytes
        victims: list[bytes] = []
        for key, entry in sorted(self._entries.items(), key=lambda item: item[1].worth):
            if free >= nbytes:
                break
            if not entry.pins:
                victims.append(key)
                free += entry.nbytes
        if free < nbytes:
            return False
        for key in victims:
            self._floor = max(self._floor, self._entries[key].worth)
            self.evictions += 1
            self._drop(key)
        return True

    def _drop(self, key: bytes) -> None:
        entry = self._entries.pop(key)
        self.used_bytes -= entry.nbytes
        self._release(entry.state)
