"""Prefix checkpoints: which parts of prompts a device keeps, found again by what was read.

Keys are chained hashes of salt and tokens, one a grid position and one for a prompt's very end, so a hit has read the
same tokens in the same pieces. Only prompts get here: nothing a draft touched. Evicted first is what saves least work a
byte, aged by use (GreedyDual-Size); a buffer that several checkpoints share counts once. An entry above the cap is
refused. `points` remembers where prompts went, so that where two part is known the second time.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from mainspring.backend.generation import GRID, CheckpointSize
from mainspring.engine.spill import Spill
from mainspring.engine.work import Tokens

MOST_POINTS = 65_536
"""Grid positions remembered for second sight: 16 bytes each and their place in a table."""


class Chain:
    """Keys of one prompt, as its tokens come."""

    def __init__(self, salt: bytes) -> None:
        self._salt = blake2b(salt, digest_size=16, person=b"ms-prefix").digest()
        self._rest: Tokens = np.zeros(0, np.int64)
        self.keys: list[bytes] = []  # of grid positions GRID, 2 GRID, ...

    def extend(self, tokens: Tokens) -> None:
        rows = np.concatenate([self._rest, tokens])
        whole = len(rows) // GRID * GRID
        for block in rows[:whole].reshape(-1, GRID):
            self.keys.append(blake2b(block.astype("<i8").tobytes(), digest_size=16, key=self._last()).digest())
        self._rest = rows[whole:]

    def end(self) -> bytes:
        """Of the prompt's very end."""
        rest = self._rest.astype("<i8").tobytes()
        return blake2b(rest, digest_size=16, key=self._last(), person=b"ms-end").digest()

    def at(self, position: int) -> bytes:
        """Of a grid position above 0."""
        return self.keys[position // GRID - 1]

    def _last(self) -> bytes:
        return self.keys[-1] if self.keys else self._salt


@dataclass
class Kept:
    checkpoint: int
    tokens: Tokens  # all of them, int32
    size: CheckpointSize
    worth: float
    outside: bytes | None


class PrefixStore:
    """`release(checkpoint)` frees one on the device. `cap_bytes` 0 keeps none. `spill` takes what is evicted, and
    has it again when its prompt comes."""

    def __init__(self, cap_bytes: int, release: Callable[[int], None], spill: Spill | None = None) -> None:
        self.cap_bytes, self.spill = cap_bytes, spill
        self.used_bytes = self.evictions = 0
        self._release = release
        self._kept: dict[bytes, Kept] = {}
        self._outside: dict[bytes, bytes] = {}
        self._shares: dict[int, int] = {}  # buffer -> entries on it
        self._points: OrderedDict[bytes, None] = OrderedDict()
        self._floor = 0.0
        self._touched: dict[bytes, None] = {}
        self._watched = False

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: bytes) -> bool:
        return key in self._kept

    def find(self, key: bytes, tokens: Tokens | None = None) -> Kept | None:
        """The entry, used now. With its `tokens` one that was spilled is taken back, where there is room for it."""
        if key not in self._kept and tokens is not None and self.spill is not None and self.cap_bytes:
            found = self.spill.load(key, len(tokens), self.cap_bytes)
            if found is not None:
                self.offer(key, found[0], tokens, found[1], None)
        kept = self._kept.get(key)
        if kept is not None:
            kept.worth = self._worth(kept)
        return kept

    def find_outside(self, outside: bytes) -> Kept | None:
        key = self._outside.get(outside)
        return None if key is None else self.find(key)

    def longest(self, chain: Chain, below: int, tokens: Tokens | None = None) -> Kept | None:
        """The longest kept prefix that ends on the grid before `below`; with `tokens`, spilled ones too."""
        for i in range(min(len(chain.keys), (below - 1) // GRID) - 1, -1, -1):
            kept = self.find(chain.keys[i], None if tokens is None else tokens[: (i + 1) * GRID])
            if kept is not None:
                return kept
        return None

    def parting(self, chain: Chain) -> int:
        """How far, on the grid, an earlier prompt went the same way; this one is remembered."""
        common = 0
        for i, key in enumerate(chain.keys):
            if key in self._points:
                common = (i + 1) * GRID
            self._points[key] = None
            self._points.move_to_end(key)
        while len(self._points) > MOST_POINTS:
            self._points.popitem(last=False)
        return common

    def offer(self, key: bytes, checkpoint: int, tokens: Tokens, size: CheckpointSize, outside: bytes | None) -> bool:
        """Take the checkpoint over if there is room or room can be made; else it is released. Whether it was taken."""
        if key in self._kept or not self._make_room(size):
            self._release(checkpoint)
            return False
        kept = Kept(checkpoint, tokens.astype(np.int32), size, 0.0, outside)
        self._kept[key] = kept
        self.used_bytes += size.own + kept.tokens.nbytes
        if not self._shares.get(size.buffer):
            self.used_bytes += size.buffer_bytes
        self._shares[size.buffer] = self._shares.get(size.buffer, 0) + 1
        kept.worth = self._worth(kept)
        if outside is not None:
            self._outside[outside] = key
            self._touch(outside)
        return True

    def name(self, key: bytes, outside: bytes) -> None:
        """Let an entry without one be known outside by this key."""
        kept = self._kept.get(key)
        if kept is not None and kept.outside is None:
            kept.outside = outside
            self._outside[outside] = key
            self._touch(outside)

    def spill_all(self) -> None:
        """Before the end, what saves most first."""
        if self.spill is not None:
            for key in sorted(self._kept, key=lambda each: self._kept[each].worth, reverse=True):
                self.spill.keep(key, self._kept[key].checkpoint)

    def clear(self) -> None:
        """Of memory; what was spilled stays."""
        for key in list(self._kept):
            self._drop(key)

    def watch(self) -> None:
        """From now on `changes` are noted; they grow until they are taken."""
        self._watched = True

    def changes(self, limit: int = 1 << 30) -> tuple[list[tuple[bytes, int]], list[bytes]]:
        """(gained with tokens, dropped) outside keys since the last call, by what is true now; at most `limit`."""
        touched = list(self._touched)[:limit]
        for outside in touched:
            del self._touched[outside]
        here = [(outside, len(self._kept[self._outside[outside]].tokens)) for outside in touched
                if outside in self._outside]  # fmt: skip
        return here, [outside for outside in touched if outside not in self._outside]

    def _touch(self, outside: bytes) -> None:
        if self._watched:
            self._touched[outside] = None

    def _worth(self, kept: Kept) -> float:
        shared = kept.size.buffer_bytes / max(self._shares.get(kept.size.buffer, 1), 1)
        return self._floor + len(kept.tokens) / max(kept.size.own + shared, 1.0)

    def _make_room(self, size: CheckpointSize) -> bool:
        need = size.own + (0 if self._shares.get(size.buffer) else size.buffer_bytes)
        if size.own + size.buffer_bytes > self.cap_bytes:
            return False
        for key in sorted(self._kept, key=lambda each: self._kept[each].worth):
            if self.used_bytes + need <= self.cap_bytes:
                break
            self._floor = max(self._floor, self._kept[key].worth)
            self.evictions += 1
            if self.spill is not None:
                self.spill.keep(key, self._kept[key].checkpoint)
            self._drop(key)
            need = size.own + (0 if self._shares.get(size.buffer) else size.buffer_bytes)
        return self.used_bytes + need <= self.cap_bytes

    def _drop(self, key: bytes) -> None:
        kept = self._kept.pop(key)
        self.used_bytes -= kept.size.own + kept.tokens.nbytes
        self._shares[kept.size.buffer] -= 1
        if not self._shares[kept.size.buffer]:
            del self._shares[kept.size.buffer]
            self.used_bytes -= kept.size.buffer_bytes
        if kept.outside is not None and self._outside.get(kept.outside) == key:
            del self._outside[kept.outside]
            self._touch(kept.outside)
        self._release(kept.checkpoint)
