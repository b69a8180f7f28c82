"""`POST /v1/scores`: one span against behaviors, the native shape."""

import hashlib

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.gateway.body import attended, decode, json_response
from mainspring.gateway.calls import ScoreCall, Scored, Stages, Terms
from mainspring.gateway.errors import ValidationError
from mainspring.gateway.headers import first, timing_headers
from mainspring.gateway.idempotency import Shared
from mainspring.gateway.schemas import NoteOut, PieceOut, ScoreOut, ScoresIn, ScoresOut, Usage
from mainspring.gateway.service import Gateway
from mainspring.gateway.visit import visit_of
from mainspring.text.question import Behavior

PATHS = ("/v1/scores", "/api/v1/scores", "/scores")
KEY_CHARS = 255
KEPT_BYTES = 256 << 10
"""A longer answer is not kept for retries."""
_DECODER = msgspec.json.Decoder(ScoresIn)
Answer = tuple[bytes, Stages]


def routes(gateway: Gateway) -> list[BaseRoute]:
    limits = gateway.config.limits
    shared: Shared[Answer] = Shared(
        limits.idempotent, limits.idempotent_s, gateway.now_s, kept=lambda found: len(found[0]) <= KEPT_BYTES
    )

    async def scores(request: Request) -> Response:
        visit = visit_of(request)
        visit.route = "/v1/scores"
        terms = visit.terms()
        asked, body = await decode(request, _DECODER)
        most = limits.behaviors
        if len(asked.behaviors) > most:
            raise ValidationError(f"limits.behaviors: at most {most} a request", param="behaviors", limit=most,
                                  actual=len(asked.behaviors))  # fmt: skip
        call = call_of(asked, terms, len(body))

        async def compute() -> Answer:
            scored = await gateway.score(call)
            return msgspec.json.encode(answer_of(asked, scored)), scored.stages

        key = first(visit.headers, b"idempotency-key")[:KEY_CHARS]
        if key:
            name = (visit.key.name, visit.route, key)
            work = shared.get(name, hashlib.blake2b(body, digest_size=16).digest(), compute)
            (found, stages), joined = await attended(request, work)
            replayed = [(b"idempotent-replayed", b"true")] if joined else []
            return json_response(found, headers=[*timing_headers(stages), *replayed])
        found, stages = await attended(request, compute())
        visit.stages = stages
        return json_response(found, headers=timing_headers(stages))

    return [Route(path, scores, methods=["POST"]) for path in PATHS]


def call_of(asked: ScoresIn, terms: Terms, size: int = 0) -> ScoreCall:
    """ValidationError for ids that come twice."""
    seen: dict[str, int] = {}
    for index, behavior in enumerate(asked.behaviors):
        if (earlier := seen.setdefault(behavior.id, index)) != index:
            raise ValidationError(f"the id is that of behaviors[{earlier}] already", param=f"behaviors[{index}].id")
    return ScoreCall(
        model=asked.model,
        span=asked.span,
        questions=tuple(Behavior(behavior.id, behavior.definition) for behavior in asked.behaviors),
        terms=terms,
        on_overflow=asked.on_overflow,
        want_view=asked.include_view,
        size=size,
    )


def answer_of(asked: ScoresIn, scored: Scored) -> ScoresOut:
    results = [
        ScoreOut(behavior.id, *map(float, row)) for behavior, row in zip(asked.behaviors, scored.rows, strict=True)
    ]
    plain = ScoresOut(scored.model, results, Usage(scored.input_tokens))
    if scored.view is None:
        return plain
    return msgspec.structs.replace(
        plain,
        notes=[NoteOut(note.kind, note.where, note.detail) for note in scored.notes],
        view=[PieceOut(piece.kind, piece.text) for piece in scored.view.pieces],
        format=scored.format,
    )
