"""Headers in and out. What comes in is bounded and checked; what goes out is bytes."""

import math
import re
import secrets
from collections.abc import Sequence

from mainspring.gateway.calls import Stages
from mainspring.gateway.errors import ValidationError

RawHeaders = Sequence[tuple[bytes, bytes]]
REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
MAX_DEADLINE_MS = 86_400_000.0


def first(headers: RawHeaders, name: bytes) -> str:
    """The first of that name, lower case, or an empty text."""
    for key, value in headers:
        if key == name:
            return value.decode("latin-1")
    return ""


def request_id_of(headers: RawHeaders) -> str:
    """The caller's where it is printable and at most 128 characters, else a new one."""
    given = first(headers, b"x-request-id")
    return given if REQUEST_ID.fullmatch(given) else "req-" + secrets.token_hex(12)


def trace_of(headers: RawHeaders) -> str:
    """A sound `traceparent` or nothing: a bad one starts a new trace elsewhere, as W3C has it."""
    given = first(headers, b"traceparent").strip()
    return given if TRACEPARENT.fullmatch(given) and "-" + "0" * 32 + "-" not in given else ""


def deadline_of(headers: RawHeaders) -> float | None:
    """`x-deadline-ms` in seconds: how long the caller waits. ValidationError."""
    given = first(headers, b"x-deadline-ms")
    if not given:
        return None
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not 0.0 < value <= MAX_DEADLINE_MS:
        raise ValidationError(f"milliseconds above 0 and at most {MAX_DEADLINE_MS:.0f}", param="x-deadline-ms",
                              limit=MAX_DEADLINE_MS)  # fmt: skip
    return value / 1000.0


def timing_headers(stages: Stages) -> list[tuple[bytes, bytes]]:
    """`x-predicted-ms` and `server-timing`."""
    parts = {"wait": stages.wait_s, "text": stages.text_s, "queue": stages.queue_s, "device": stages.device_s,
             "fleet": stages.fleet_s}  # fmt: skip
    timing = ", ".join(f"{name};dur={1000.0 * seconds:.2f}" for name, seconds in parts.items())
    return [(b"x-predicted-ms", b"%.1f" % (1000.0 * stages.predicted_s)), (b"server-timing", timing.encode())]
