"""Accepted links on the router's side, and the book of them by role and name.

`Peer` is one link: the link machine, its connection, what each open stream serves, what waits for the connection to
drain. `LinkBook` answers `Knock`: an epoch from one counter for the router's life; of one node name one link at a time:
the same instance replaces its old link, another one is told `BUSY` while the first is heard. Clients may share a name.
"""

from collections import deque
from dataclasses import dataclass, field

from msgspec import Struct

from mainspring.fleet.budget import Budget
from mainspring.fleet.bundles import Sending
from mainspring.wire import messages as m
from mainspring.wire.errors import BusyError, Close
from mainspring.wire.link import CloseConnection, Closed, Knock, Link, LinkEvent, Rules
from mainspring.wire.transport import HIGH_BYTES, Connection, Identity

FOREVER = float("inf")
TOTAL_BYTES = 1 << 30
LEAST_SHARE = 16
"""Links of one name are a quarter of all at most, or so many: one certificate must not keep the others out."""


@dataclass(eq=False)
class Peer:
    """`streams`: what each stream serves, by whatever opened or accepted it. Of a node: its last `offer` and `report`,
    whether the core knows it (`serving`), and keys it told before that. `awaited`: bundles that it waits for."""

    connection: Connection
    link: Link
    identity: Identity
    since_s: float
    heard_s: float
    epoch: int = 0
    instance: int = 0
    armed_s: float = FOREVER
    joined: bool = False
    draining: bool = False
    closed: bool = False
    streams: dict[int, object] = field(default_factory=dict)
    held_back: deque[object] = field(default_factory=deque)
    sending: deque[Sending] = field(default_factory=deque)
    awaited: int = 0
    offer: m.Offer | None = None
    report: m.NodeReport | None = None
    report_s: float = 0.0
    serving: bool = False
    early_keys: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def role(self) -> m.Role:
        return self.identity.role

    @property
    def full(self) -> bool:
        """Nothing big is written until `writable`."""
        return self.connection.backlog_bytes > HIGH_BYTES

    @property
    def half_trip_s(self) -> float:
        return min(self.link.round_trip_s / 2.0, 60.0) if self.link.round_trip_s < FOREVER else 0.0

    def flush(self, now_s: float) -> list[LinkEvent]:
        """Hand to the transport what the link has for it; what time alone has caused."""
        outputs, events = self.link.poll(now_s)
        for output in outputs:
            if isinstance(output, CloseConnection):
                self.connection.close(output.close, output.message)
            else:
                self.connection.write(output.stream, output.data, output.end)
        return events


class Silence(Struct, frozen=True):
    """A node link that ended by silence: when it was last heard, and which (request, shard) ran there."""

    heard_s: float
    work: frozenset[tuple[str, int]]


class LinkBook:
    def __init__(
        self, rules: Rules, max_links: int, unfinished_bytes: int = TOTAL_BYTES, backlog_bytes: int = TOTAL_BYTES
    ) -> None:
        self.rules = rules
        self.max_links = max_links
        self.peers: set[Peer] = set()
        self.unfinished = Budget(unfinished_bytes, lambda peer: peer.link.buffered_bytes, self.peers)
        self.backlog = Budget(backlog_bytes, lambda peer: peer.connection.backlog_bytes, self.peers)
        self.nodes: dict[str, Peer] = {}
        self.epoch = 0
        self._silences: deque[Silence] = deque(maxlen=64)

    def __len__(self) -> int:
        return len(self.peers)

    def accept(self, connection: Connection, now_s: float) -> Peer:
        """Raises BusyError at `max_links`, and at the share of one name."""
        if len(self.peers) >= self.max_links:
            raise BusyError(f"the router takes {self.max_links} links at once")
        mine, share = connection.peer, max(LEAST_SHARE, self.max_links // 4)
        if sum((peer.role, peer.name) == (mine.role, mine.name) for peer in self.peers) >= share:
            raise BusyError(f"one name has at most {share} links at once")
        link = Link.answer(connection.peer, now_s, self.rules)
        peer = Peer(connection, link, connection.peer, now_s, now_s)
        self.peers.add(peer)
        return peer

    def rival(self, peer: Peer, knock: Knock, now_s: float) -> Peer | None:
        """The link that has to end before this one may join. BusyError where that one lives and is another process."""
        if peer.role == "node":
            old = self.nodes.get(peer.name)
        else:
            same = (p for p in self.peers if p.joined and (p.role, p.name) == (peer.role, peer.name))
            old = next((p for p in same if p.instance == knock.hello.instance), None)
        if old is None or old.instance == knock.hello.instance:
            return old
        if now_s - old.heard_s < self.rules.timing.idle_s / 2.0:
            raise BusyError("another process with this name is connected")
        return old

    def welcome(self, peer: Peer, knock: Knock, router: int, now_s: float) -> None:
        self.epoch += 1
        peer.epoch, peer.instance, peer.joined = self.epoch, knock.hello.instance, True
        peer.link.welcome(self.epoch, router, now_s)
        if peer.role == "node":
            self.nodes[peer.name] = peer

    def forget(self, peer: Peer) -> None:
        peer.closed = True
        self.peers.discard(peer)
        self.unfinished.forget(peer)
        self.backlog.forget(peer)
        if self.nodes.get(peer.name) is peer:
            del self.nodes[peer.name]

    def node(self, name: str, epoch: int) -> Peer | None:
        peer = self.nodes.get(name)
        return peer if peer is not None and peer.epoch == epoch and not peer.closed else None

    def crashed(self, peer: Peer, closed: Closed, work: frozenset[tuple[str, int]], now_s: float) -> bool:
        """Whether what ran there is suspect.

        Not after a goodbye, a replacement by the same process or the end of a certificate, nor where links fell silent
        together: each pings every third of the idle timeout, so links that one cut ended were last heard within that
        of each other. Whoever ran the same shard is no witness: a request that kills two nodes looks like that.
        """
        if closed.orderly or closed.close in (Close.REPLACED, Close.CERTIFICATE, Close.GOODBYE, Close.DRAINED):
            return False
        if closed.close is not Close.IDLE:
            return True
        timing = self.rules.timing
        third = timing.idle_s / 3.0 + 0.1
        together = [old for old in self._silences if abs(old.heard_s - peer.heard_s) < third and not old.work & work]
        self._silences.append(Silence(peer.heard_s, work))
        quiet = [
            other
            for other in self.nodes.values()
            if other is not peer
            and now_s - other.heard_s > timing.idle_s / 2.0
            and abs(other.heard_s - peer.heard_s) < third
            and not work_of(other) & work
        ]
        return not (together or quiet)


def work_of(peer: Peer) -> frozenset[tuple[str, int]]:
    """(request, shard) of everything sent to a node and not over."""
    shards: set[tuple[str, int]] = set()
    for served in peer.streams.values():
        shards |= getattr(served, "shards", frozenset())
    return frozenset(shards)
