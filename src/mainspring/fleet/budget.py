"""Bytes that all links together may hold, beside what each may: unfinished frames coming in, a backlog going out.

One link's bound times a thousand links is more than a machine has. Who is beyond the total's end is not who caused it:
the link that holds most is ended.
"""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainspring.fleet.links import Peer


class Budget:
    """`held(peer)` is the truth about one link. What was last noted of each may be stale on the high side, so it is
    counted anew before anybody is blamed."""

    def __init__(self, limit_bytes: int, held: "Callable[[Peer], int]", peers: "Collection[Peer]") -> None:
        self.limit_bytes = limit_bytes
        self._held, self._peers = held, peers
        self._noted: dict[Peer, int] = {}
        self.noted_bytes = 0

    def note(self, peer: "Peer") -> "Peer | None":
        """After it may have grown: the link to end, if the total is exceeded."""
        self._set(peer, self._held(peer))
        if self.noted_bytes <= self.limit_bytes:
            return None
        for each in [*self._noted]:
            self._set(each, self._held(each) if each in self._peers else 0)
        if self.noted_bytes <= self.limit_bytes:
            return None
        return max(self._noted, key=self._noted.__getitem__)

    def forget(self, peer: "Peer") -> None:
        self._set(peer, 0)

    def _set(self, peer: "Peer", held_bytes: int) -> None:
        self.noted_bytes += held_bytes - self._noted.pop(peer, 0)
        if held_bytes:
            self._noted[peer] = held_bytes
