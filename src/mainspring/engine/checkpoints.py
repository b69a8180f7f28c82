"""Kept views: key -> state handle, within a byte budget.

Evicted first is what saves least: rows that a hit saves, over bytes, aged by use (GreedyDual-Size: an entry's worth is
the floor at its last use plus rows / bytes; evicting raises the floor to the victim's worth). Entries in use are
pinned, an entry above the whole budget is refused.

`hold` pins a key from outside, whether its entry is there yet or not: work that waits builds on it. Whoever tells
others which keys are here says `watch` and then takes `changes` now and then. Calls may come from two threads: one runs
passes, another one holds and drops.
"""

from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock


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
        self._holds: dict[bytes, int] = {}
        self._touched: dict[bytes, None] = {}
        self._watched = False
        self._floor = 0.0
        self._lock = RLock()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries

    def rows(self, key: bytes) -> int | None:
        """Tokens that the entry's state has seen, None where there is none."""
        entry = self._entries.get(key)
        return None if entry is None else entry.rows

    def acquire(self, key: bytes) -> int | None:
        """The state kept under `key`, pinned until `unpin`; None where there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self.misses += 1
                return None
            self.hits += 1
            entry.worth = self._floor + entry.rows / max(entry.nbytes, 1)
            entry.pins += 1
            return entry.state

    def unpin(self, key: bytes) -> None:
        with self._lock:
            self._entries[key].pins -= 1

    def offer(self, key: bytes, state: int, *, rows: int, nbytes: int) -> bool:
        """Take over `state` if it fits, making room; else, or where the key is known, the caller still owns it."""
        with self._lock:
            self.touch(key)  # refused ones too: somebody may count on them
            if key in self._entries or not self._make_room(nbytes):
                return False
            self._entries[key] = Entry(state, rows, nbytes, self._floor + rows / max(nbytes, 1))
            self.used_bytes += nbytes
            return True

    def take(self, key: bytes) -> int | None:
        """The state kept under `key`, now the caller's; None where there is none or a pass uses it."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.pins:
                return None
            del self._entries[key]
            self.used_bytes -= entry.nbytes
            self.touch(key)
            return entry.state

    def hold(self, key: bytes) -> None:
        """Not to be evicted until as many `let_go`."""
        with self._lock:
            self._holds[key] = self._holds.get(key, 0) + 1

    def let_go(self, key: bytes) -> None:
        """ValueError where nobody holds it."""
        with self._lock:
            count = self._holds.get(key, 0)
            if not count:
                raise ValueError("nobody holds that key")
            if count == 1:
                del self._holds[key]
            else:
                self._holds[key] = count - 1

    def holds(self, key: bytes) -> int:
        return self._holds.get(key, 0)

    @property
    def held(self) -> int:
        """Keys that are held from outside."""
        return len(self._holds)

    def drop(self, key: bytes) -> bool:
        """Free the entry, held or not. False where there is none or a pass uses it."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.pins:
                return False
            self._drop(key)
            return True

    def clear(self) -> None:
        """Free whatever is neither pinned nor held."""
        with self._lock:
            for key in [key for key in self._entries if self._evictable(key)]:
                self._drop(key)

    def listing(self) -> list[tuple[bytes, int]]:
        """(key, rows), all of them."""
        with self._lock:
            return [(key, entry.rows) for key, entry in self._entries.items()]

    def watch(self) -> None:
        """From now on `changes` are noted; they grow until they are taken."""
        self._watched = True

    def changes(self, limit: int = 1 << 30) -> tuple[list[tuple[bytes, int]], list[bytes]]:
        """(gained with rows, dropped) since the last call, at most `limit` keys; the rest comes with the next call.

        By what is true now: a key that came and went is dropped, one that went and came is gained. One that was
        offered and found no room counts as dropped.
        """
        with self._lock:
            touched = list(self._touched)[:limit]
            for key in touched:
                del self._touched[key]
            gained = [(key, self._entries[key].rows) for key in touched if key in self._entries]
            return gained, [key for key in touched if key not in self._entries]

    @property
    def changed(self) -> bool:
        return bool(self._touched)

    def _evictable(self, key: bytes) -> bool:
        return not self._entries[key].pins and key not in self._holds

    def _make_room(self, nbytes: int) -> bool:
        free = self.budget_bytes - self.used_bytes
        victims: list[bytes] = []
        for key, entry in sorted(self._entries.items(), key=lambda item: item[1].worth):
            if free >= nbytes:
                break
            if self._evictable(key):
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
        self.touch(key)
        self._release(entry.state)

    def touch(self, key: bytes) -> None:
        """Say about the key in the next `changes`: somebody may count on it."""
        if self._watched:
            self._touched[key] = None
