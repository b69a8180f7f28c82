"""A router's status as a page of text."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainspring.wire.messages import NodeStatus, Status


def card(status: "Status") -> str:
    """One line of summary, then nodes, models and classes."""
    up = f"up {_span(status.up_s)}"
    busy = f"{status.counters.get('open', 0):.0f} requests open, {status.payload_bytes / 2**20:.1f} MiB of tokens"
    head = f"mainspring {status.version} {up}, {status.clients} clients, {busy}"
    if status.draining:
        head += ", draining"
    if given_up := status.counters.get("nodes_given_up"):
        head += f", {given_up:.0f} local nodes given up"
    if status.omitted:
        head += ", not listed: " + ", ".join(f"{count} {name}" for name, count in sorted(status.omitted.items()))
    nodes = [
        (
            each.name, each.state + (" (provisional)" if each.provisional else ""), each.numerics,
            f"{each.held}/{each.waiting}", f"{each.busy_share:.0%}", f"{1e3 * each.cost.c0:.1f}",
            f"{1e6 * each.cost.c1:.1f}", f"{1e6 * each.cost.c2:.1f}",
            f"{each.predicted_error:.0%}" if each.error_passes else "-", f"{each.keys}", _memory(each),
            f"{1e3 * each.round_trip_s:.1f}", _span(each.heard_s),
            f"{each.transport} {each.address}", each.device,
        )
        for each in status.nodes
    ]  # fmt: skip
    writers = [
        (
            each.name, f"{each.slots_used}/{each.slots}", f"{each.written.streams}", f"{each.written.tokens}",
            f"{each.written.tokens / max(1, each.written.slot_rounds):.2f}",
            f"{each.written.accepted}/{each.written.drafted}",
            f"{1e3 * each.written.round_s / max(1, each.written.rounds):.1f}",
            f"{each.written.cached}/{each.written.cached + each.written.prefilled}", f"{each.written.failed}",
        )
        for each in status.nodes
        if each.written is not None
    ]  # fmt: skip
    models = [
        (" ".join(each.aliases), each.model[:12], " ".join(each.numerics), f"{each.usable}/{each.nodes}",
         f"{each.queued}", each.bundle[:12])
        for each in status.models
    ]  # fmt: skip
    classes = [
        (each.name, "-" if each.target_s is None else f"{each.target_s:g}", f"{each.p50_s:.3f}", f"{each.p99_s:.3f}",
         f"{each.queued}", f"{each.answered}", f"{each.late}",
         " ".join(f"{code}:{n}" for code, n in sorted(each.refused.items())) or "0")
        for each in status.classes
    ]  # fmt: skip
    streams = [
        (each.name, f"{each.streams}", f"{each.tokens}", f"{each.first_p50_s:.3f}", f"{each.first_p99_s:.3f}",
         f"{1e3 * each.gap_p50_s:.1f}", f"{1e3 * each.gap_p99_s:.1f}",
         "-" if each.token_s is None else f"{1e3 * each.token_s:g}")
        for each in status.classes
        if each.streams
    ]  # fmt: skip
    return "\n".join(
        [
            head,
            "",
            *_table(("node", "state", "numerics", "held/waiting", "busy", "c0 ms", "c1 us", "c2 us", "off by", "keys",
                     "memory", "trip ms", "heard", "address", "device"), nodes),
            "",
            *_table(("model", "key", "numerics", "usable", "queued", "bundle"), models),
            "",
            *(
                (*_table(("generates", "slots", "streams", "tokens", "a round", "drafts kept", "round ms",
                          "prompts cached", "failed"), writers), "")
                if writers else ()
            ),
            *_table((f"class, last {_span(status.window_s)}", "target s", "p50 s", "p99 s", "queued", "answered",
                     "late", "refused"), classes),
            *(
                ("", *_table(("streams of", "ended", "tokens", "first p50 s", "first p99 s", "token p50 ms",
                              "token p99 ms", "at most ms"), streams))
                if streams else ()
            ),
        ]
    )  # fmt: skip


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _memory(node: "NodeStatus") -> str:
    """What the device knows of itself, `-` where it knows nothing."""
    told = [] if node.memory_bytes is None else [f"{node.memory_bytes / 2**30:.1f} GiB"]
    told += [] if node.temperature_c is None else [f"{node.temperature_c:.0f} C"]
    return " ".join(told) or "-"


def _span(seconds: float) -> str:
    if seconds < 60.0:
        return f"{seconds:.1f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 5400.0 else f"{seconds / 3600.0:.1f} h"
