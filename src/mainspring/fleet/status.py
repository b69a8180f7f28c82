"""`Status` from the core's state and the book of links: true to a report's age, cheap enough to ask each second."""

from typing import TYPE_CHECKING, Literal

from mainspring.core.nodestate import NodeState
from mainspring.core.state import ModelState
from mainspring.fleet.links import Peer
from mainspring.fleet.tally import Ending, quantile
from mainspring.version import __version__
from mainspring.wire import messages as m

if TYPE_CHECKING:
    from mainspring.fleet.shell import Shell

Condition = Literal["starting", "ready", "busy", "draining", "failing", "late", "gone"]
LONGEST_S = 86_400.0
MAX_CODES = 64


def status_of_router(shell: "Shell", passes: int, now_s: float) -> m.Status:
    """What the router knows now; of a node, what it said last and how long ago it was heard."""
    peers = sorted((peer for peer in shell.book.nodes.values() if peer.offer is not None), key=lambda peer: peer.name)
    recent = shell.tally.recent(now_s)
    counters = {**shell.core.counters.as_dict(), **shell.tally.counts, "open": float(len(shell.clients.open))}
    return m.Status(
        router=shell.instance,
        up_s=now_s - shell.began_s,
        version=__version__,
        draining=shell.draining,
        models=tuple(model_status(shell, name) for name in [*shell.models.offers][:256]),
        nodes=tuple(node_status(shell, peer, now_s) for peer in peers[:1024]),
        classes=tuple(
            class_status(name, slo.priority, slo.target_s, recent.get(name, []))
            for name, slo in sorted(shell.core.state.classes.items())
        )[:64],
        passes=tuple(
            m.PassStatus(
                node=each.node, pass_id=each.pass_id, ago_s=max(0.0, now_s - each.when_s),
                predicted_s=min(each.predicted_s, LONGEST_S), measured_s=each.measured_s, parts=each.parts,
                tokens=each.tokens,
            )
            for each in [*shell.tally.passes][len(shell.tally.passes) - min(passes, len(shell.tally.passes)) :]
        ),
        counters={name: float(value) for name, value in counters.items()},
        payload_bytes=shell.payloads.held_bytes,
        clients=sum(1 for peer in shell.book.peers if peer.joined and peer.role == "client"),
    )  # fmt: skip


def model_status(shell: "Shell", name: str) -> m.ModelStatus:
    offers = shell.models.offers[name]
    state: ModelState | None = shell.core.state.models.get(name)
    last = [*offers.values()][-1]
    return m.ModelStatus(
        model=name,
        aliases=shell.models.aliases(name),
        bundle=last.bundle,
        limits=last.limits if state is None else state.widest,
        numerics=tuple(sorted({offer.numerics for offer in offers.values()})),
        nodes=len(offers),
        usable=0 if state is None else len(state.usable),
        queued=0 if state is None else state.queued(),
    )


def node_status(shell: "Shell", peer: Peer, now_s: float) -> m.NodeStatus:
    offer, report = peer.offer, peer.report
    assert offer is not None  # noqa: S101 - only peers with an offer are asked about
    node: NodeState | None = shell.core.state.nodes.get(peer.name) if peer.serving else None
    heard_s = max(0.0, now_s - peer.heard_s)
    ran = [each for each in shell.tally.passes if each.node == peer.name]
    since_s = max(now_s - 60.0, peer.since_s)
    busy_s = sum(each.measured_s for each in ran if each.when_s > since_s)
    verdict = None if node is None else node.fit.verdict()
    return m.NodeStatus(
        name=peer.name, model=offer.model, epoch=peer.epoch, state=state_of(shell, peer, node, heard_s),
        numerics=offer.numerics, cost=offer.cost if node is None else node.fit.cost, heard_s=heard_s,
        idle_s=min(LONGEST_S, (report.idle_s + now_s - peer.report_s) if report else now_s - peer.since_s),
        device=offer.device, address=peer.connection.address[:2048], transport=peer.connection.transport,
        round_trip_s=min(60.0, 2.0 * peer.half_trip_s), held=0 if node is None else len(node.held),
        keys=len(peer.early_keys) if node is None else len(node.keys),
        slots_used=0 if node is None else len(node.leases), slots=offer.limits.slots,
        passes=0 if report is None else report.passes, failures=0 if report is None else report.failures,
        busy_share=min(1.0, busy_s / max(1e-3, now_s - since_s)),
        predicted_error=0.0 if verdict is None else verdict.median_error, provisional=offer.provisional,
        note="" if report is None else report.note,
    )  # fmt: skip


def state_of(shell: "Shell", peer: Peer, node: NodeState | None, heard_s: float) -> Condition:
    """What can be seen from here goes before what the node says: a silent one is `late` whatever it said last."""
    timing = shell.settings.rules.timing
    if node is None:
        return "starting"
    if node.late or heard_s > timing.idle_s / 2.0:
        return "late"
    if node.draining:
        return "draining"
    if peer.report is not None and peer.report.state == "failing":
        return "failing"
    return "busy" if node.held or node.leases else "ready"


def class_status(name: str, priority: int, target_s: float | None, endings: list[Ending]) -> m.ClassStatus:
    answered = [ending for ending in endings if not ending.code]
    times = sorted(ending.total_s for ending in answered)
    refused: dict[str, int] = {}
    for ending in endings:
        if ending.code and (ending.code in refused or len(refused) < MAX_CODES):
            refused[ending.code] = refused.get(ending.code, 0) + 1
    return m.ClassStatus(
        name=name, priority=priority, target_s=target_s, p50_s=quantile(times, 0.5), p99_s=quantile(times, 0.99),
        answered=len(answered), late=sum(ending.late for ending in answered), refused=refused,
    )  # fmt: skip
