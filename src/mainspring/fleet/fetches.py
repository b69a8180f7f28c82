"""How the router comes by a bundle: from memory, from disk, from one node after the other that offers it.

One fetch a bundle and `FETCHES` in all, whoever asks meanwhile waits for it. A node that does not give what it offered
within `FETCH_S`, or gives something else, is sent away with a reason, and the next is asked.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainspring.fleet.bundles import Fetching, Packed
from mainspring.fleet.errors import BundleError
from mainspring.fleet.links import FOREVER, Peer
from mainspring.wire import messages as m
from mainspring.wire.errors import Close, LimitError

if TYPE_CHECKING:
    from mainspring.fleet.shell import Shell

log = logging.getLogger("mainspring.fleet")

FETCHES = 4
FETCH_S = 120.0

Then = Callable[[Any, float], None]
"""Called once, with the `Packed` bundle or None where nobody can give it, and the time."""


@dataclass(eq=False)
class Fetch:
    bundle: str
    thens: list[Then]
    under_way: bool = False
    peer: Peer | None = None
    stream: int = 0
    by_s: float = FOREVER


class Fetches:
    def __init__(self, shell: "Shell") -> None:
        self.shell = shell
        self._of: dict[str, Fetch] = {}

    def __len__(self) -> int:
        return len(self._of)

    def want(self, bundle: str, then: Then, now_s: float) -> None:
        packed = self.shell.bundles.peek(bundle)
        if packed is not None:
            then(packed, now_s)
            return
        self._of.setdefault(bundle, Fetch(bundle, [])).thens.append(then)
        self._start(now_s)

    def hear(self, peer: Peer, fetching: Fetching, message: m.Message, now_s: float) -> None:
        """Of the stream that a fetch opened to a node."""
        fetch = self._of.get(fetching.bundle)
        if fetch is None or fetch.peer is not peer:
            return
        try:
            if isinstance(message, m.BundleData):
                fetching.take(message)
            elif isinstance(message, m.BundleEnd):
                self._judge(fetch, peer, fetching.finish(message), message, now_s)
        except BundleError as error:
            self._blame(fetch, peer, error, now_s)

    def left(self, peer: Peer, now_s: float) -> None:
        """The next node is asked, once this one is out of the book."""
        for fetch in [*self._of.values()]:
            if fetch.peer is peer and fetch.by_s < FOREVER:
                self._ask_next(fetch, now_s)

    def due_s(self) -> float:
        """Asked after every event, and hardly ever is there one."""
        return min((fetch.by_s for fetch in self._of.values()), default=FOREVER) if self._of else FOREVER

    def timer(self, now_s: float) -> None:
        for fetch in [*self._of.values()]:
            if now_s >= fetch.by_s and fetch.peer is not None:
                self._blame(fetch, fetch.peer, BundleError(f"it did not come within {FETCH_S:g} s"), now_s)

    # -------------------------------------------------------------- within

    def _start(self, now_s: float) -> None:
        under_way = sum(fetch.under_way for fetch in self._of.values())
        for fetch in [fetch for fetch in self._of.values() if not fetch.under_way][: FETCHES - under_way]:
            fetch.under_way = True
            bundle = fetch.bundle
            self.shell.off_loop.run(
                lambda bundle=bundle: self.shell.bundles.load(bundle),  # type: ignore[misc]
                lambda outcome, when_s, fetch=fetch: self._loaded(fetch, outcome, when_s),  # type: ignore[misc]
                now_s,
            )

    def _loaded(self, fetch: Fetch, outcome: object, now_s: float) -> None:
        if isinstance(outcome, Packed):
            self._finish(fetch, outcome, now_s)
        else:
            self._ask_next(fetch, now_s)

    def _ask_next(self, fetch: Fetch, now_s: float) -> None:
        fetch.peer, fetch.by_s = None, FOREVER
        for peer in self.shell.book.nodes.values():
            offer = peer.offer
            if offer is None or offer.bundle != fetch.bundle or peer.closed:
                continue
            try:
                stream = peer.link.open(m.FetchBundle(bundle=fetch.bundle), now_s)
            except (LimitError, ValueError):  # full, or about to be forgotten
                continue
            peer.streams[stream] = Fetching(fetch.bundle, offer.bundle_bytes, offer.bundle_sha256)
            fetch.peer, fetch.stream, fetch.by_s = peer, stream, now_s + FETCH_S
            self.shell.touch(peer)
            return
        self._finish(fetch, None, now_s)

    def _judge(self, fetch: Fetch, peer: Peer, data: bytes, end: m.BundleEnd, now_s: float) -> None:
        fetch.by_s = FOREVER
        bundle = fetch.bundle
        self.shell.off_loop.run(
            lambda: self.shell.bundles.admit(bundle, data, size=end.size, sha256=end.sha256),
            lambda outcome, when_s: self._judged(fetch, peer, outcome, when_s),
            now_s,
        )

    def _judged(self, fetch: Fetch, peer: Peer, outcome: object, now_s: float) -> None:
        if isinstance(outcome, Packed):
            self._finish(fetch, outcome, now_s)
        elif isinstance(outcome, BundleError):
            self._blame(fetch, peer, outcome, now_s)
        else:
            # Nobody's fault but ours, so the next node's would fare no better.
            log.error("bundle %s can't be checked: %r", m.one_line(fetch.bundle), outcome)
            self._finish(fetch, None, now_s)

    def _blame(self, fetch: Fetch, peer: Peer, error: BundleError, now_s: float) -> None:
        log.warning("node %s: its bundle %s: %s", peer.name, m.one_line(fetch.bundle), m.one_line(error.message))
        self.shell.tally.count("bundles_refused")
        fetch.peer, fetch.by_s = None, FOREVER  # its end must not ask the next as well
        self.shell.close(peer, Close.PROTOCOL, f"the bundle that was offered: {error.message}"[:200], now_s)
        self._ask_next(fetch, now_s)

    def _finish(self, fetch: Fetch, packed: Packed | None, now_s: float) -> None:
        self._of.pop(fetch.bundle, None)
        if packed is not None:
            self.shell.bundles.keep(fetch.bundle, packed)
        for then in fetch.thens:
            self.shell.off_loop.shielded(then, packed, now_s)
        self._start(now_s)
