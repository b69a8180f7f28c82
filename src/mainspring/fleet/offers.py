"""What nodes offer and report: checked, their bundle fetched, told to the core; or declined with a reason."""

import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainspring.core import events as ev
from mainspring.core.nouns import NodeSpec
from mainspring.core.refusals import BadNodeError
from mainspring.errors import MainspringError
from mainspring.fleet.bundles import MAX_BYTES, Packed
from mainspring.fleet.links import Peer
from mainspring.wire import messages as m
from mainspring.wire.errors import Close
from mainspring.wire.exchanges import CONTROL

if TYPE_CHECKING:
    from mainspring.fleet.shell import Shell

log = logging.getLogger("mainspring.fleet")

PASS_TOKENS = 2 << 20
PASS_PARTS = 4096
"""What one frame of 16 MiB carries, with labels."""
EARLY_KEYS = 2 * PASS_PARTS
DEFAULT_NETWORK_S = 0.001


class OfferDesk:
    def __init__(self, shell: "Shell") -> None:
        self.shell = shell

    def offered(self, peer: Peer, offer: m.Offer, now_s: float) -> None:
        try:
            check_offer(offer)
        except MainspringError as error:
            self.decline(peer, error, now_s)
            return
        peer.offer = offer
        if not peer.awaited:  # one bundle at a time: what it offers meanwhile is looked at after that
            peer.awaited = 1
            self.shell.fetches.want(offer.bundle, lambda packed, when_s: self._have(peer, offer, packed, when_s), now_s)

    def _have(self, peer: Peer, offer: m.Offer, packed: Packed | None, now_s: float) -> None:
        peer.awaited = 0
        if peer.closed or peer.offer is None:
            return
        if peer.offer.bundle != offer.bundle:
            self.offered(peer, peer.offer, now_s)
        elif packed is None:  # declined it would stay and never offer again; so it comes back, with backoff
            self.shell.close(peer, Close.INTERNAL, "its bundle can't be had or checked now", now_s)
        else:
            self._join(peer, now_s)

    def _join(self, peer: Peer, now_s: float) -> None:
        offer, shell = peer.offer, self.shell
        if offer is None or peer.closed:
            return
        spec = spec_of(peer, offer)
        try:
            spec.check()
            shell.models.offered(peer.name, offer)
        except MainspringError as error:
            self.decline(peer, error, now_s)
            return
        if peer.serving:
            shell.tell(ev.NodeLeft(peer.name, peer.epoch, crashed=False))
        peer.serving = True
        shell.tell(ev.NodeJoined(spec))
        if peer.draining:
            shell.tell(ev.NodeDraining(peer.name, peer.epoch))
        log.info("node %s serves %s (%s, %s)", peer.name, m.one_line(offer.alias), offer.numerics,
                 m.one_line(offer.device))  # fmt: skip

    def reject(self, name: str, error: MainspringError, now_s: float) -> None:
        peer = self.shell.book.nodes.get(name)
        if peer is not None:
            self.decline(peer, error, now_s)

    def decline(self, peer: Peer, error: MainspringError, now_s: float) -> None:
        """It gets no work until it offers again. Nothing on a link that has ended: the name may have a later one."""
        if peer.closed:
            return
        log.warning("node %s: its offer can't be used: %s", peer.name, m.one_line(str(error)))
        if peer.serving:
            peer.serving = False
            self.shell.tell(ev.NodeLeft(peer.name, peer.epoch, crashed=False))
        self.shell.models.gone(peer.name)
        peer.offer = None
        self.shell.say(peer, CONTROL, m.Declined(code=error.code, message=str(error)[:2048]), now_s)

    def reported(self, peer: Peer, report: m.NodeReport, now_s: float) -> None:
        peer.report, peer.report_s = report, now_s
        if not peer.serving:
            if report.fresh:
                peer.early_keys.clear()
            peer.early_keys.update(report.gained[: EARLY_KEYS - len(peer.early_keys)])
            for key in report.dropped:
                peer.early_keys.pop(key, None)
            return
        state = self.shell.core.state.nodes.get(peer.name)
        trip_s = peer.half_trip_s
        moved = state is not None and trip_s > 0.0 and abs(trip_s - state.net_s) > max(0.0005, 0.2 * state.net_s)
        event = ev.NodeRefined(
            peer.name, peer.epoch, cost=report.cost, round_cost=report.round_cost, anchors=report.anchors or None,
            limits=report.limits, network_s=trip_s if moved else None, gained=report.gained, dropped=report.dropped,
            fresh=report.fresh,
        )  # fmt: skip
        try:
            if peer.offer is not None:
                check_offer(refined_offer(peer.offer, report))
                peer.offer = refined_offer(peer.offer, report)
        except MainspringError as error:
            log.warning("node %s: its refined constants can't be used: %s", peer.name, m.one_line(str(error)))
            event = replace(event, cost=None, round_cost=None, anchors=None, limits=None)
        if event != ev.NodeRefined(peer.name, peer.epoch):
            self.shell.tell(event)


def spec_of(peer: Peer, offer: m.Offer) -> NodeSpec:
    """The core's node: its keys are those told before it was let in."""
    keys, peer.early_keys = tuple(peer.early_keys.items()), {}
    return NodeSpec(
        id=peer.name, model=offer.model, cost=offer.cost, round_cost=offer.round_cost, epoch=peer.epoch,
        numerics=offer.numerics, device_key=offer.device_key, idle_neighbour=offer.idle_neighbour,
        busy_neighbour=offer.busy_neighbour, limits=offer.limits, network_s=peer.half_trip_s or DEFAULT_NETWORK_S,
        anchors=offer.anchors, keys=keys,
    )  # fmt: skip


def refined_offer(offer: m.Offer, report: m.NodeReport) -> m.Offer:
    changes = {
        name: value
        for name in ("cost", "round_cost", "limits", "provisional")
        if (value := getattr(report, name)) is not None
    }
    return replace(offer, **changes)


def check_offer(offer: m.Offer) -> None:
    """What the core does not ask: what fits in a frame. Raises BadNodeError, BadCostError."""
    offer.cost.check()
    if offer.round_cost is not None:
        offer.round_cost.check()
    limits = offer.limits
    if min(limits.pass_tokens, limits.pass_parts, limits.view_tokens, limits.context_tokens) < 1 or limits.slots < 0:
        raise BadNodeError("every limit must be at least 1", param="limits")
    if limits.pass_tokens > PASS_TOKENS:
        raise BadNodeError(
            f"{limits.pass_tokens:,} tokens, a frame carries {PASS_TOKENS:,}", param="limits.pass_tokens"
        )
    if limits.pass_parts > PASS_PARTS:
        raise BadNodeError(f"{limits.pass_parts:,} parts, a frame carries {PASS_PARTS:,}", param="limits.pass_parts")
    if offer.bundle_bytes > MAX_BYTES:
        raise BadNodeError(f"a bundle has at most {MAX_BYTES:,} bytes", param="bundle_bytes")
