"""`Status` from the core's state and the book of links: true to a report's age, cheap enough to ask each second."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from mainspring.core.nodestate import NodeState
from mainspring.core.nouns import SloClass
from mainspring.core.state import ModelState
from mainspring.fleet.links import Peer
from mainspring.fleet.tally import MAX_CODES, WINDOW_S, Ending, PassRecord, quantile
from mainspring.version import __version__
from mainspring.wire import messages as m

if TYPE_CHECKING:
    from mainspring.fleet.shell import Shell

Condition = Literal["starting", "ready", "busy", "draining", "failing", "late", "gone"]
LONGEST_S = 86_400.0
SILENT = m.NodeReport()
"""Of a node that has not reported yet."""
MOST = {
    "models": (256, 1 << 20),
    "nodes": (1024, 2 << 20),
    "classes": (64, 256 << 10),
    "passes": (1000, 512 << 10),
}
"""How many a record of the wire takes, and bytes of each list: with the rest within `Status.cap`."""
_ENCODER = msgspec.msgpack.Encoder()


def status_of_router(shell: "Shell", passes: int, now_s: float) -> m.Status:
    """What the router knows now; of a node, what it said last and how long ago it was heard. Fits its frame."""
    peers = sorted((peer for peer in shell.book.nodes.values() if peer.offer is not None), key=lambda peer: peer.name)
    ran = ran_lately(shell, now_s)
    queues = queues_of(shell)
    classes = sorted(shell.core.state.classes.items())
    recent = shell.tally.recent(now_s)
    counters = {**shell.core.counters.as_dict(), **shell.tally.counts, "open": float(len(shell.clients.open))}
    return fitted(
        m.Status(
            router=shell.instance,
            up_s=now_s - shell.began_s,
            version=__version__,
            draining=shell.draining,
            counters={name: float(value) for name, value in counters.items()},
            payload_bytes=shell.payloads.held_bytes,
            payload_cap_bytes=shell.payloads.cap_bytes,
            clients=sum(1 for peer in shell.book.peers if peer.joined and peer.role == "client"),
            totals=totals(shell, ran, queues, now_s),
            window_s=shell.tally.window_s(now_s),
        ),
        models=[model_status(shell, name) for name in shell.models.offers],
        nodes=[node_status(shell, peer, ran.get(peer.name, ()), now_s) for peer in peers],
        classes=[
            class_status(name, slo, recent.get(name, []), queues.get(name, (0, 0)))
            for name, slo in classes
        ],
        passes=[
            m.PassStatus(
                node=each.node, pass_id=each.pass_id, ago_s=max(0.0, now_s - each.when_s),
                predicted_s=min(each.predicted_s, LONGEST_S), measured_s=each.measured_s, parts=each.parts,
                tokens=each.tokens,
            )
            for each in [*shell.tally.passes][len(shell.tally.passes) - min(passes, len(shell.tally.passes)) :]
        ],
    )  # fmt: skip


def fitted(status: m.Status, **lists: list[Any]) -> m.Status:
    """`status` with as much of each list as its share of the frame and the wire's count hold; the rest is counted in
    `omitted`. Of passes the last ones stay, else the first."""
    kept: dict[str, tuple[Any, ...]] = {}
    omitted: dict[str, int] = {}
    for name, items in lists.items():
        most, room = MOST[name]
        order = items[::-1] if name == "passes" else items
        if len(items) <= most and len(_ENCODER.encode(items)) <= room:  # as nearly always: once, not by the item
            kept[name] = tuple(items)
            continue
        taken: list[Any] = []
        for item in order[:most]:
            room -= len(_ENCODER.encode(item))
            if room < 0:
                break
            taken.append(item)
        kept[name] = tuple(taken[::-1] if name == "passes" else taken)
        if len(taken) < len(items):
            omitted[name] = len(items) - len(taken)
    return replace(status, **kept, omitted=omitted)


def queues_of(shell: "Shell") -> dict[str, tuple[int, int]]:
    """By class: requests open, and those of them that wait for a node at least in part."""
    counts: dict[str, list[int]] = {}
    for job in shell.core.state.jobs.values():
        count = counts.setdefault(job.slo.name, [0, 0])
        count[0] += 1
        count[1] += any(shard.queued for shard in job.shards)
    return {name: (count[0], count[1]) for name, count in counts.items()}


def ran_lately(shell: "Shell", now_s: float) -> dict[str, list[PassRecord]]:
    """Passes of the last minute by node."""
    ran: dict[str, list[PassRecord]] = {}
    for each in shell.tally.passes:
        if each.when_s > now_s - WINDOW_S:
            ran.setdefault(each.node, []).append(each)
    return ran


def written_by(shell: "Shell") -> m.Written | None:
    """Summed over the nodes that are here; None where none generates."""
    told = [peer.report.written for peer in shell.book.nodes.values() if peer.report and peer.report.written]
    if not told:
        return None
    longest = max(len(each.histogram) for each in told)
    histogram = [sum(each.histogram[at] for each in told if at < len(each.histogram)) for at in range(longest)]
    names = [name for name in m.Written.__struct_fields__ if name != "histogram"]
    return m.Written(histogram=tuple(histogram), **{name: sum(getattr(each, name) for each in told) for name in names})


def totals(
    shell: "Shell", ran: dict[str, list[PassRecord]], queues: dict[str, tuple[int, int]], now_s: float
) -> m.Totals:
    tally, nodes = shell.tally, shell.core.state.nodes.values()
    return m.Totals(
        open=len(shell.clients.open), queued=sum(queued for _, queued in queues.values()), submitted=tally.submitted,
        answered=tally.answered, late=tally.late, refused=dict(tally.refused),
        passes=sum(map(len, ran.values())), pass_tokens=sum(each.tokens for some in ran.values() for each in some),
        nodes=len(shell.book.nodes), usable=sum(not (node.late or node.draining) for node in nodes),
        streams=len(shell.nodes.work.leases), tokens_s=shell.tally.tokens_s(now_s), written=written_by(shell),
    )  # fmt: skip


def model_status(shell: "Shell", name: str) -> m.ModelStatus:
    offers = shell.models.offers[name]
    state: ModelState | None = shell.core.state.models.get(name)
    last = next(reversed(offers.values()))
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


def node_status(shell: "Shell", peer: Peer, ran: Sequence[PassRecord], now_s: float) -> m.NodeStatus:
    """`ran`: its passes of the last minute."""
    offer, report = peer.offer, peer.report or SILENT
    assert offer is not None  # noqa: S101 - only peers with an offer are asked about
    node: NodeState | None = shell.core.state.nodes.get(peer.name) if peer.serving else None
    heard_s = max(0.0, now_s - peer.heard_s)
    since_s = max(now_s - WINDOW_S, peer.since_s)
    busy_s = sum(each.measured_s for each in ran if each.when_s > since_s)
    verdict = None if node is None else node.fit.verdict()
    return m.NodeStatus(
        name=peer.name, model=offer.model, epoch=peer.epoch, state=state_of(shell, peer, node, heard_s),
        numerics=offer.numerics, cost=offer.cost if node is None else node.fit.cost, heard_s=heard_s,
        idle_s=min(LONGEST_S, now_s - peer.since_s if peer.report is None else report.idle_s + now_s - peer.report_s),
        device=cut(offer.device), address=cut(peer.connection.address), transport=peer.connection.transport,
        round_trip_s=min(60.0, 2.0 * peer.half_trip_s), held=0 if node is None else len(node.held),
        keys=len(peer.early_keys) if node is None else len(node.keys),
        slots_used=0 if node is None else len(node.leases), slots=offer.limits.slots,
        passes=report.passes, failures=report.failures,
        busy_share=min(1.0, busy_s / max(1e-3, now_s - since_s)),
        predicted_error=0.0 if verdict is None else verdict.median_error,
        error_passes=0 if verdict is None else verdict.samples,
        provisional=offer.provisional, note=cut(report.note), alias=offer.alias, waiting=report.waiting,
        cache_bytes=report.cache_bytes, memory_bytes=report.memory_bytes,
        memory_total_bytes=report.memory_total_bytes, temperature_c=report.temperature_c,
        report_s=None if peer.report is None else max(0.0, now_s - peer.report_s), declared=offer.cost,
        round_cost=offer.round_cost, written=report.written,
    )  # fmt: skip


def cut(text: str) -> str:
    return text if len(text) <= m.TEXT_CHARS else text[: m.TEXT_CHARS - 3] + "..."


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


def class_status(name: str, slo: SloClass, endings: list[Ending], queue: tuple[int, int]) -> m.ClassStatus:
    """`queue`: requests of it that are open, and queued."""
    streams = [ending for ending in endings if ending.tokens]
    firsts, gaps = sorted(each.total_s for each in streams), sorted(each.gap_s for each in streams if each.tokens > 1)
    answered = [ending for ending in endings if not ending.code]
    times = sorted(ending.total_s for ending in answered)
    refused: dict[str, int] = {}
    for ending in endings:
        if ending.code and (ending.code in refused or len(refused) < MAX_CODES):
            refused[ending.code] = refused.get(ending.code, 0) + 1
    return m.ClassStatus(
        name=name, priority=slo.priority, target_s=slo.target_s, p50_s=quantile(times, 0.5),
        p99_s=quantile(times, 0.99), answered=len(answered), late=sum(ending.late for ending in answered),
        refused=refused, open=queue[0], queued=queue[1], streams=len(streams),
        tokens=sum(each.tokens for each in streams), first_p50_s=quantile(firsts, 0.5),
        first_p99_s=quantile(firsts, 0.99), gap_p50_s=quantile(gaps, 0.5),
        gap_p99_s=quantile(gaps, 0.99), token_s=slo.token_s,
    )  # fmt: skip
