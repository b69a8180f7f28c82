"""Traces on disk: a request a line in JSON, with its time; and timelines for a trace viewer (Perfetto).

Line: {"at_s": 0.25, "id": "r1", "model": "m", "slo": "standard", "view_tokens": 4000, "branches": [64, 64]} and any
other field of `Request`. Blank lines are skipped; anything else that is not a request is an error with its line number.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from mainspring.core.nouns import Request
from mainspring.errors import MalformedError
from mainspring.simulate.vnode import VirtualNode


def read_trace(path: Path) -> list[tuple[float, Request]]:
    entries = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            fields = msgspec.json.decode(line)
            at_s = float(fields.pop("at_s"))
            entries.append((at_s, msgspec.convert(fields, Request)))
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise MalformedError(f"line {number} is no request: {error}", param=str(path.name)) from None
    return entries


def write_trace(path: Path, entries: Iterable[tuple[float, Request]]) -> int:
    """Number of lines written."""
    lines = [msgspec.json.encode({"at_s": at_s, **msgspec.structs.asdict(request)}) for at_s, request in entries]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return len(lines)


def chrome_trace(nodes: dict[str, VirtualNode]) -> bytes:
    """Passes and rounds of every node as complete events, microseconds."""
    events: list[dict[str, Any]] = []
    for row, (name, node) in enumerate(sorted(nodes.items())):
        events.append({"name": "thread_name", "ph": "M", "pid": 1, "tid": row, "args": {"name": name}})
        for begin, took, kind, number in node.trace:
            event = {"name": f"{kind} {number}", "ph": "X", "pid": 1, "tid": row, "cat": kind}
            events.append(event | {"ts": round(begin * 1e6, 3), "dur": round(took * 1e6, 3)})
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"})
