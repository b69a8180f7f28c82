"""How every scoring route answers: its work is attended, and done once for all requests with one idempotency key."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mainspring.gateway.body import attended, json_response
from mainspring.gateway.calls import Stages
from mainspring.gateway.errors import ValidationError
from mainspring.gateway.headers import first, timing_headers
from mainspring.gateway.visit import Visit

KEY_CHARS = 255
Answer = tuple[Any, Stages]


async def answered_once(
    visit: Visit, request: Request, body: bytes, compute: Callable[[], Awaitable[Answer]]
) -> Response:  # fmt: skip
    """`compute()` gives what becomes JSON, and its stages. ValidationError, IdempotencyError, HangUpError; what
    `compute` raises."""

    async def encoded() -> tuple[bytes, Stages]:
        value, stages = await compute()
        return msgspec.json.encode(value), stages

    key = first(visit.headers, b"idempotency-key")
    if len(key) > KEY_CHARS:
        raise ValidationError(f"at most {KEY_CHARS} characters", param="idempotency-key", limit=KEY_CHARS,
                              actual=len(key))  # fmt: skip
    if not key:
        found, stages = await attended(request, encoded())
        visit.stages = stages
        return json_response(found, headers=timing_headers(stages))
    name, digest = (visit.key.name, visit.route, key), hashlib.blake2b(body, digest_size=16).digest()
    if visit.gateway.shared.has(name):
        visit.leave_line()  # the text is another request's
    (found, stages), joined = await attended(request, visit.gateway.shared.get(name, digest, encoded))
    if joined:  # the work is in the log and the metrics of the request that did it
        return json_response(found, headers=[*timing_headers(stages), (b"idempotent-replayed", b"true")])
    visit.stages = stages
    return json_response(found, headers=timing_headers(stages))
