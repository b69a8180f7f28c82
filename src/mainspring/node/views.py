"""Views by key between passes: kept ones (the engine's store) and half-scanned ones of a shard.

Every key a waiting pass builds on is held from receipt to use; a key that is not there at receipt, and that no earlier
waiting pass will leave, is missing at once. Half-scanned views get a name of their own a scan, so that a shard begun
again never meets its past; they go with `release`, with their last chunk, with a chunk that fails, or after a minute
without one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mainspring.engine.checkpoints import CheckpointStore
from mainspring.node.dependants import with_dependants
from mainspring.wire.messages import Part
from mainspring.wire.records import HeldKeys

HALF_S = 60.0
TOLD = 2048
"""Keys gained or dropped that one message carries; the rest comes with the next."""


@dataclass
class Place:
    """Where one part's scan starts and what its end is kept under."""

    resume: bytes | None = None
    take: bool = False
    keep: bytes | None = None
    must_keep: bool = False
    start: int = 0
    end: int = 0


@dataclass
class Claim:
    """What one pass builds on and will leave: made at receipt, settled once."""

    places: list[Place]
    held: list[bytes] = field(default_factory=list)
    shards: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Index of each part that more chunks follow -> its shard."""
    settled: bool = False


@dataclass
class Half:
    key: bytes
    end: int
    touched_s: float


class Views:
    def __init__(self, store: CheckpointStore) -> None:
        self.store = store
        store.watch()
        self._halves: dict[tuple[str, int], Half] = {}
        self._promised: dict[bytes, list[int]] = {}
        self._scans = 0

    def missing(self, parts: Sequence[Part]) -> tuple[set[int], tuple[str, ...]]:
        """Indices of parts that build on what is not here and that no waiting pass will leave, or share the view of one
        that does; and the keys of those that the router may believe in."""
        lost = {i for i, part in enumerate(parts) if part.view_from and part.parent < 0 and self._resume(part) is None}
        keys = tuple(dict.fromkeys(parts[i].prefix for i in sorted(lost) if parts[i].prefix))
        return with_dependants([part.parent for part in parts], lost), keys

    def gone(self, claim: Claim) -> tuple[set[int], tuple[str, ...]]:
        """When the pass is to begin: indices of its parts whose checkpoint went meanwhile, or was never left; and the
        keys of those that the router may believe in."""
        lost = {
            index
            for index, place in enumerate(claim.places)
            if place.resume is not None and self.store.rows(place.resume) != place.start
        }
        return lost, self.names([key for i in sorted(lost) if (key := claim.places[i].resume) is not None])

    def claim(self, parts: Sequence[Part], now_s: float) -> Claim:
        """Hold what the parts build on, none of which is `missing`."""
        resumes = [self._resume(part) for part in parts]
        claim = Claim([self._place(part, found) for part, found in zip(parts, resumes, strict=True)])
        for place in claim.places:
            for needed in (place.resume, place.keep if place.must_keep else None):
                if needed is not None:
                    self.store.hold(needed)
                    claim.held.append(needed)
            if place.keep is not None:
                self._promised.setdefault(place.keep, []).append(place.end)
        for index, (part, place) in enumerate(zip(parts, claim.places, strict=True)):
            self._follow(part, place, index, claim, now_s)
        return claim

    def settle(self, claim: Claim, now_s: float, *, failed: Sequence[int] = ()) -> None:
        """The pass is over; `failed`: parts whose end is not there (all of them, where it did not run)."""
        if claim.settled:
            return
        claim.settled = True
        for place in claim.places:
            if place.keep is not None:
                ends = self._promised[place.keep]
                ends.remove(place.end)
                if not ends:
                    del self._promised[place.keep]
        for held in claim.held:
            self.store.let_go(held)
        for index, shard in claim.shards.items():
            half, place = self._halves.get(shard), claim.places[index]
            if half is not None and half.key in (place.keep, place.resume):
                half.touched_s = now_s
                if index in failed:
                    self._forget(shard)
        for place in claim.places:
            for key in (place.resume, place.keep):
                if key is not None:
                    self._sweep(key)

    def distrust(self, claim: Claim, parts: Sequence[int]) -> None:
        """These parts came out as NaN or infinity: nothing they built on or left is worth keeping."""
        for index in parts:
            for key in (claim.places[index].resume, claim.places[index].keep):
                if key is not None:
                    self.store.drop(key)

    def release(self, request: str) -> None:
        """The request is settled: no more chunks of it."""
        for shard in [shard for shard in self._halves if shard[0] == request]:
            self._forget(shard)

    def forget_halves(self) -> None:
        """The router is gone, and with it every shard."""
        for shard in list(self._halves):
            self._forget(shard)

    def expire(self, now_s: float) -> None:
        """Let go of half-scanned views that nobody has come back to."""
        for shard, half in list(self._halves.items()):
            if now_s - half.touched_s <= HALF_S:
                continue
            if self.store.holds(half.key) == 1:
                self._forget(shard)
            else:
                half.touched_s = now_s  # a pass that waits builds on it

    def expiry_s(self) -> float:
        return min((half.touched_s + HALF_S for half in self._halves.values()), default=float("inf"))

    @property
    def half_scanned(self) -> int:
        return len(self._halves)

    def changes(self) -> tuple[HeldKeys, tuple[str, ...]]:
        """(gained, dropped) that the router has to hear of, at most `TOLD` in all."""
        gained, dropped = self.store.changes(TOLD)
        return (
            tuple((_name(key), rows) for key, rows in gained if not _is_half(key)),
            tuple(_name(key) for key in dropped if not _is_half(key)),
        )

    def all(self) -> HeldKeys:
        """Everything kept, for a router that knows nothing: changes so far are said with it."""
        while self.store.changed:
            self.store.changes()
        return tuple((_name(key), rows) for key, rows in self.store.listing() if not _is_half(key))

    @staticmethod
    def names(keys: Sequence[bytes]) -> tuple[str, ...]:
        """As the router knows them; half-scanned views it does not."""
        return tuple(_name(key) for key in keys if not _is_half(key))

    # -------------------------------------------------------------- within

    def _resume(self, part: Part) -> bytes | None:
        """What the part goes on from, None where that is nothing or missing."""
        if part.view_from == 0 or part.parent >= 0:
            return None
        if part.prefix:
            key = _key(part.prefix)
            there = self.store.rows(key) == part.view_from or part.view_from in self._promised.get(key, ())
            return key if there else None
        half = self._halves.get((part.request, part.shard))
        return half.key if half is not None and half.end == part.view_from else None

    def _place(self, part: Part, resume: bytes | None) -> Place:
        place = Place(resume, start=part.view_from, end=part.view_to)
        moves = bool(part.view_tokens) or not part.more
        place.take = resume is not None and _is_half(resume) and moves
        if part.view_key:
            place.keep, place.must_keep = _key(part.view_key), part.more
        elif part.more and moves:
            self._scans += 1
            place.keep, place.must_keep = b"h%d" % self._scans, True
        return place

    def _follow(self, part: Part, place: Place, index: int, claim: Claim, now_s: float) -> None:
        """Note where the shard's next chunk goes on; the last chunk and a first one end what was before."""
        shard = (part.request, part.shard)
        key = place.keep or place.resume
        if not part.more or key is None:
            self._forget(shard)
            return
        self.store.hold(key)  # first: it may be the one that is let go next
        self._forget(shard)
        self._halves[shard] = Half(key, place.end, now_s)
        claim.shards[index] = shard

    def _forget(self, shard: tuple[str, int]) -> None:
        half = self._halves.pop(shard, None)
        if half is not None:
            self.store.let_go(half.key)
            self._sweep(half.key)

    def _sweep(self, key: bytes) -> None:
        """A half-scanned view that no shard and no waiting pass goes on from is of no use to anybody."""
        if _is_half(key) and not self.store.holds(key):
            self.store.drop(key)


def _key(name: str) -> bytes:
    return b"v" + name.encode()


def _name(key: bytes) -> str:
    return key[1:].decode()


def _is_half(key: bytes) -> bool:
    return key.startswith(b"h")
