"""`POST /v1/scores`: one span against behaviors, the native shape."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.gateway.body import decode
from mainspring.gateway.calls import ScoreCall, Scored, Stages, Terms
from mainspring.gateway.errors import ValidationError
from mainspring.gateway.routes._once import answered_once
from mainspring.gateway.schemas import NoteOut, PieceOut, ScoreOut, ScoresIn, ScoresOut, Usage
from mainspring.gateway.service import Gateway
from mainspring.gateway.visit import visit_of
from mainspring.text.question import Behavior

FAMILIAR_MOST = 256
"""It takes half a millisecond each."""
PATHS = ("/v1/scores", "/api/v1/scores", "/scores")
_DECODER = msgspec.json.Decoder(ScoresIn)


def routes(gateway: Gateway) -> list[BaseRoute]:
    most = gateway.config.limits.behaviors

    async def scores(request: Request) -> Response:
        visit = visit_of(request)
        visit.route = "/v1/scores"
        terms = await visit.terms()
        asked, body = await decode(request, _DECODER)
        if len(asked.behaviors) > most:
            raise ValidationError(f"limits.behaviors: at most {most} a request", param="behaviors", limit=most,
                                  actual=len(asked.behaviors))  # fmt: skip
        if asked.include_familiarity and len(asked.behaviors) > FAMILIAR_MOST:
            raise ValidationError(f"for at most {FAMILIAR_MOST} behaviors a request", param="include_familiarity",
                                  limit=FAMILIAR_MOST, actual=len(asked.behaviors))  # fmt: skip
        call = call_of(asked, terms, visit.held_bytes)

        async def compute() -> tuple[ScoresOut, Stages]:
            scored = await gateway.score(call)
            return answer_of(asked, scored), scored.stages

        return await answered_once(visit, request, body, compute)

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
        want_familiarity=asked.include_familiarity,
        size=size,
    )


def answer_of(asked: ScoresIn, scored: Scored) -> ScoresOut:
    near: Sequence[float | UnsetType] = scored.familiarity or [UNSET] * len(scored.rows)
    results: list[ScoreOut] = []
    for behavior, row, familiarity in zip(asked.behaviors, scored.rows, near, strict=True):
        present, absent, not_observable = row.tolist()
        results.append(ScoreOut(behavior.id, present, absent, not_observable, familiarity))
    plain = ScoresOut(scored.model, results, Usage(scored.input_tokens))
    if scored.view is None:
        return plain
    return msgspec.structs.replace(
        plain,
        notes=[NoteOut(note.kind, note.where, note.detail) for note in scored.notes],
        view=[PieceOut(piece.kind, piece.text) for piece in scored.view.pieces],
        format=scored.format,
    )
