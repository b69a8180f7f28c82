"""The router's loop without decisions: link events -> core events -> `Router.handle` -> actions -> messages.

    shell = Shell(settings, instance, now_s)
    peer = shell.accept(connection, now_s)                  # then shell.received(peer, stream, data, end, now_s), ...
    shell.timer(now_s)  when  shell.next_deadline()  is due

No sockets, no clock: tests drive it with memory links and virtual time, as the simulator drives the core. `nodes` turns
passes into messages and reports into events, `clients` submits into requests and answers into results. Each request is
answered once: `Answer`, `Refuse`, or the client is gone. A fault while handling one thing is logged and fails that
thing only.
"""

import logging
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from mainspring.core import events as ev
from mainspring.core.actions import (
    Action,
    Admit,
    Answer,
    CloseLease,
    DropPass,
    OpenLease,
    Refuse,
    RejectNode,
    SendPass,
)
from mainspring.core.router import Router
from mainspring.faultlog import log_fault
from mainspring.fleet.admission import Models
from mainspring.fleet.answers import Answers
from mainspring.fleet.budget import Budget
from mainspring.fleet.bundles import BundleCache
from mainspring.fleet.clients import ClientDesk
from mainspring.fleet.errors import DrainingError, InternalError
from mainspring.fleet.fetches import Fetches
from mainspring.fleet.links import FOREVER, LinkBook, Peer
from mainspring.fleet.nodes import NodeDesk
from mainspring.fleet.offloop import OffLoop
from mainspring.fleet.payloads import Payloads
from mainspring.fleet.settings import Settings
from mainspring.fleet.tally import Tally
from mainspring.wire import messages as m
from mainspring.wire.errors import BusyError, Close, WireError
from mainspring.wire.exchanges import CONTROL
from mainspring.wire.link import Closed, Knock, LinkEvent, Received
from mainspring.wire.transport import Connection

log = logging.getLogger("mainspring.fleet")


class Shell:
    def __init__(self, settings: Settings, instance: int, now_s: float, bundles: BundleCache | None = None) -> None:
        """Raises BadShapeError for classes that can't be used."""
        self.settings = settings
        self.instance = instance
        self.began_s = now_s
        self.core = Router(settings.classes)
        self.book = LinkBook(
            settings.rules, settings.max_links, settings.unfinished_total_bytes, settings.backlog_total_bytes
        )
        self.models = Models(settings.models)
        self.payloads = Payloads(settings.payload_bytes, settings.client_bytes)
        self.answers = Answers()
        self.bundles = bundles or BundleCache()
        self.fetches = Fetches(self)
        self.tally = Tally()
        self.nodes = NodeDesk(self)
        self.clients = ClientDesk(self)
        self.draining = False
        self.done = False
        self.off_loop = OffLoop(self)
        self._drain_by_s = FOREVER
        self._events: deque[ev.Event | Callable[[], None]] = deque()
        self._touched: dict[Peer, None] = {}
        self._deadlines: list[tuple[float, int, Peer]] = []
        self._serial = 0

    # -------------------------------------------------------------- from transports and clocks

    def accept(self, connection: Connection, now_s: float) -> Peer:
        """Raises BusyError when as many links are open as may be."""
        peer = self.book.accept(connection, now_s)
        self._arm(peer)
        return peer

    def received(self, peer: Peer, stream: int, data: bytes, end: bool, now_s: float) -> None:
        peer.heard_s = now_s
        self._take(peer, peer.link.receive(stream, data, end, now_s), now_s)
        self._within(self.book.unfinished, peer, "unfinished frames (limits.unfinished_total_mib)", now_s)
        self._settle(peer, now_s)

    def reset(self, peer: Peer, stream: int, now_s: float) -> None:
        self._take(peer, peer.link.reset(stream, now_s), now_s)
        self._settle(peer, now_s)

    def writable(self, peer: Peer, now_s: float) -> None:
        self.nodes.work.resume(peer, now_s)
        self.clients.resume(peer, now_s)
        self._settle(peer, now_s)

    def lost(self, peer: Peer, close: Close, message: str, remote: bool, now_s: float) -> None:
        self._take(peer, peer.link.lost(close, message, remote, now_s), now_s)
        self._settle(None, now_s)

    def timer(self, now_s: float) -> None:
        due_s = self.core.next_deadline()
        if due_s is not None and due_s <= now_s:
            self._events.append(ev.Timer())
        while self._deadlines and self._deadlines[0][0] <= now_s:
            _, _, peer = heappop(self._deadlines)
            peer.armed_s = FOREVER
            self.touch(peer)
        if self.fetches.due_s() <= now_s:
            self.fetches.timer(now_s)
        if self.draining and (now_s >= self._drain_by_s or not self.clients.open):
            self._finish_drain(now_s)
        self._settle(None, now_s)

    def next_deadline(self) -> float:
        """Infinite when nothing is awaited."""
        core_s = self.core.next_deadline()
        link_s = self._deadlines[0][0] if self._deadlines else FOREVER
        drain_s = FOREVER if self.done else self._drain_by_s
        return min(FOREVER if core_s is None else core_s, link_s, drain_s, self.fetches.due_s())

    # -------------------------------------------------------------- from the process around

    def end(self, peer: Peer, close: Close, message: str, now_s: float) -> None:
        """For reasons that only the process knows: a revoked or expired certificate, a dead child."""
        self.close(peer, close, message, now_s)
        self._settle(peer, now_s)

    def child_exited(self, name: str, now_s: float) -> None:
        """A supervised node's process is gone: what ran there is suspect at once."""
        peer = self.book.nodes.get(name)
        if peer is not None and not peer.closed:
            self.end(peer, Close.LOST, "its process exited", now_s)

    def drain(self, within_s: float, now_s: float) -> None:
        """Take nothing new, answer what is here within that time, refuse the rest, say goodbye; then `done`."""
        if self.draining:
            return
        self.draining = True
        self._drain_by_s = now_s + within_s
        for peer in self.book.peers:
            if peer.joined and peer.role == "client":
                self.say(peer, CONTROL, m.Drain(within_s=within_s, reason="the router is shutting down"), now_s)
        if not self.clients.open:
            self._finish_drain(now_s)
        self._settle(None, now_s)

    # -------------------------------------------------------------- for the desks

    def tell(self, event: ev.Event) -> None:
        """The core hears of it before the current call ends."""
        self._events.append(event)

    def later(self, do: Callable[[], None]) -> None:
        """After the core has heard what it was told so far, within the current call."""
        self._events.append(do)

    def settle(self, now_s: float) -> None:
        """After `later` from without."""
        self._settle(None, now_s)

    def touch(self, peer: Peer) -> None:
        self._touched[peer] = None

    def say(self, peer: Peer, stream: int, message: m.Message, now_s: float) -> None:
        """On a link that has ended nothing is said."""
        peer.link.send(stream, message, now_s)
        self.touch(peer)

    def close(self, peer: Peer, close: Close, message: str, now_s: float) -> None:
        self._take(peer, peer.link.close(close, message, now_s), now_s)
        self.touch(peer)

    # -------------------------------------------------------------- within

    def _take(self, peer: Peer, events: list[LinkEvent], now_s: float) -> None:
        for event in events:
            if isinstance(event, Received):
                if peer.closed:  # by what came before it
                    continue
                self._guarded(lambda event=event: self._hear(peer, event, now_s), peer, event.stream, now_s)  # type: ignore[misc]
            elif isinstance(event, Knock):
                self._knock(peer, event, now_s)
            elif isinstance(event, Closed):
                self._closed(peer, event, now_s)

    def _hear(self, peer: Peer, event: Received, now_s: float) -> None:
        if peer.role == "node":
            self.nodes.hear(peer, event, now_s)
        else:
            self.clients.hear(peer, event, now_s)

    def _knock(self, peer: Peer, knock: Knock, now_s: float) -> None:
        try:
            if self.draining:
                raise BusyError("the router is shutting down")
            rival = self.book.rival(peer, knock, now_s)
        except WireError as error:
            log.info("%s %s at %s: %s", peer.role, peer.name, peer.connection.address, error.message)
            self.close(peer, error.close, error.message, now_s)
            return
        if rival is not None:
            same = rival.instance == knock.hello.instance
            self.close(rival, Close.REPLACED if same else Close.IDLE, "a later link of this name", now_s)
        self.book.welcome(peer, knock, self.instance, now_s)
        self.touch(peer)
        log.info("%s %s joined from %s (%s), epoch %d", peer.role, peer.name, peer.connection.address,
                 peer.connection.transport, peer.epoch)  # fmt: skip

    def _closed(self, peer: Peer, closed: Closed, now_s: float) -> None:
        known = peer.joined
        if known:
            log.info("%s %s left: %s %s", peer.role, peer.name, closed.close.name.lower(), closed.message)
        if known and peer.role == "node":
            self.nodes.left(peer, closed, now_s)
        elif known:
            self.clients.left(peer, now_s)
        self.book.forget(peer)

    def _settle(self, peer: Peer | None, now_s: float) -> None:
        """Until nothing is left to do: events to the core, its actions, what links have to write and found out."""
        if peer is not None:
            self.touch(peer)
        while self._events or self._touched:
            while self._events:
                event = self._events.popleft()
                if callable(event):
                    self._guarded(event, None, None, now_s)
                else:
                    self._step(event, now_s)
            touched, self._touched = self._touched, {}
            for each in touched:
                self._write_out(each, now_s)
            if self.draining and not self.done and not self.clients.open:
                self._finish_drain(now_s)  # goodbyes, which go out in another turn of this loop

    def _write_out(self, peer: Peer, now_s: float) -> None:
        """What fails at this is that link's affair, and not of whoever's turn it is: the others get theirs."""
        try:
            self._take(peer, peer.flush(now_s), now_s)
            self._pump(peer, now_s)
            self._within(self.book.backlog, peer, "what peers do not read (limits.backlog_total_mib)", now_s)
            self._arm(peer)
        except Exception as error:
            log_fault(log, error, "a fault while writing to %s %s", peer.role, peer.name)
            self.tally.count("faults")
            self._take(peer, peer.link.lost(Close.INTERNAL, "internal fault", False, now_s), now_s)
            peer.connection.close(Close.INTERNAL, "internal fault")

    def _within(self, budget: Budget, peer: Peer, what: str, now_s: float) -> None:
        """The total over all links; the one that holds most is ended."""
        most = None if peer.closed else budget.note(peer)
        if most is not None:
            log.warning("%s %s holds most of too many bytes of %s", most.role, most.name, what)
            self.tally.count("links_over_total")
            self.close(
                most, Close.LIMIT, f"all links hold {budget.limit_bytes >> 20} MiB of {what}, this one most", now_s
            )

    def _pump(self, peer: Peer, now_s: float) -> None:
        """Bundles go out while the connection takes them; `writable` comes back here."""
        while peer.sending and not peer.full and not peer.closed:
            sending = peer.sending.popleft()
            piece = sending.next()
            peer.link.send(sending.stream, piece, now_s)
            self._take(peer, peer.flush(now_s), now_s)
            if isinstance(piece, m.BundleData):
                peer.sending.append(sending)

    def _arm(self, peer: Peer) -> None:
        due_s = None if peer.closed else peer.link.next_deadline()
        if due_s is not None and due_s < peer.armed_s:
            peer.armed_s = due_s
            self._serial += 1
            heappush(self._deadlines, (due_s, self._serial, peer))

    def _step(self, event: ev.Event, now_s: float) -> None:
        try:
            actions = self.core.handle(event, now_s)
        except Exception as error:
            log_fault(log, error, "the router core failed on %s", type(event).__name__)
            self.tally.count("faults")
            self._start_over(now_s)
            return
        for action in actions:
            self._guarded(lambda action=action: self._carry(action, now_s), action, None, now_s)  # type: ignore[misc]

    def _start_over(self, now_s: float) -> None:
        """What a core that failed half-way still knows can't be trusted: everything open is refused, nodes are sent
        away and come back to a new one within seconds."""
        self._events = deque(event for event in self._events if callable(event))
        self.core = Router(self.settings.classes)
        for request_id in list(self.clients.open):
            self.clients.refuse(request_id, InternalError("internal fault"), now_s)
        for peer in list(self.book.nodes.values()):
            peer.serving = False
            self.close(peer, Close.INTERNAL, "internal fault", now_s)

    def _carry(self, action: Action, now_s: float) -> None:
        if isinstance(action, SendPass):
            self.nodes.work.send_pass(action.work, now_s)
        elif isinstance(action, DropPass):
            self.nodes.work.drop_pass(action.pass_id, now_s)
        elif isinstance(action, OpenLease):
            self.nodes.work.open_lease(action.lease, now_s)
        elif isinstance(action, CloseLease):
            self.nodes.work.close_lease(action.request_id, now_s)
        elif isinstance(action, RejectNode):
            self.nodes.offers.reject(action.node_id, action.error, now_s)
        elif isinstance(action, Admit):
            self.clients.admit(action.request_id, action.predicted_s, now_s)
        elif isinstance(action, Answer):
            self.clients.answer(action, now_s)
        else:
            self.clients.refuse(action.request_id, action.error, now_s)

    def _guarded(self, do: Callable[[], None], what: Peer | Action | None, stream: int | None, now_s: float) -> None:
        """One fault must not stop the loop, nor leave its request without an answer."""
        try:
            do()
        except Exception as error:
            log_fault(log, error, "a fault while handling %s", type(what).__name__)
            self.tally.count("faults")
            if isinstance(what, SendPass):
                self.tell(ev.WorkFailed(what.work.node_id, what.work.epoch, what.work.id))
            elif isinstance(what, Answer | Admit | OpenLease | Refuse):
                request_id = what.lease.request_id if isinstance(what, OpenLease) else what.request_id
                self.tell(ev.Cancel(request_id))
                self.clients.refuse(request_id, InternalError("internal fault"), now_s)
            elif isinstance(what, Peer) and stream is not None:
                self._abort(what, stream, now_s)

    def _abort(self, peer: Peer, stream: int, now_s: float) -> None:
        """A fault about the link as a whole ends it: what the peer said was not taken in, and it must not think so."""
        if peer.role == "client" and stream != CONTROL:
            self.clients.abort(peer, stream, now_s)
        else:
            self.close(peer, Close.INTERNAL, "internal fault", now_s)

    def _finish_drain(self, now_s: float) -> None:
        self.done = True
        for request_id in list(self.clients.open):
            self.tell(ev.Cancel(request_id))
            self.clients.refuse(request_id, DrainingError(), now_s)
        for peer in list(self.book.peers):
            self.close(peer, Close.DRAINED, "the router is shutting down", now_s)
