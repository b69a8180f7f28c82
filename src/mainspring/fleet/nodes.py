"""The shell's side of node links: whatever comes goes to `offers` or `work`; an end goes to the core with a verdict."""

from typing import TYPE_CHECKING

from mainspring.core import events as ev
from mainspring.fleet.bundles import Fetching
from mainspring.fleet.links import Peer, work_of
from mainspring.fleet.offers import OfferDesk
from mainspring.fleet.work import LeaseStream, Sent, WorkDesk
from mainspring.wire import messages as m
from mainspring.wire.exchanges import CONTROL
from mainspring.wire.link import Closed, Received

if TYPE_CHECKING:
    from mainspring.fleet.shell import Shell


class NodeDesk:
    def __init__(self, shell: "Shell") -> None:
        self.shell = shell
        self.offers = OfferDesk(shell)
        self.work = WorkDesk(shell)

    def hear(self, peer: Peer, event: Received, now_s: float) -> None:
        message = event.message
        if event.stream == CONTROL:
            self._control(peer, message, now_s)
            return
        served = peer.streams.get(event.stream)
        if event.last:
            peer.streams.pop(event.stream, None)
        if isinstance(served, Sent):
            self.work.about_pass(served, message, now_s)
        elif isinstance(served, LeaseStream):
            self.work.about_lease(served, message, now_s)
        elif isinstance(served, Fetching):
            self.shell.fetches.hear(peer, served, message, now_s)

    def _control(self, peer: Peer, message: m.Message, now_s: float) -> None:
        if isinstance(message, m.Offer):
            self.offers.offered(peer, message, now_s)
        elif isinstance(message, m.NodeReport):
            self.offers.reported(peer, message, now_s)
        elif isinstance(message, m.Drain):
            peer.draining = True
            if peer.serving:
                self.shell.tell(ev.NodeDraining(peer.name, peer.epoch))

    def left(self, peer: Peer, closed: Closed, now_s: float) -> None:
        """The core gives its work to others; whether what ran is suspect is the book's judgement."""
        crashed = self.shell.book.crashed(peer, closed, work_of(peer), now_s)
        self.work.lost(peer)
        self.shell.fetches.left(peer, now_s)
        peer.streams.clear()
        if peer.serving:
            peer.serving = False
            self.shell.tell(ev.NodeLeft(peer.name, peer.epoch, crashed))
        self.shell.models.gone(peer.name)
