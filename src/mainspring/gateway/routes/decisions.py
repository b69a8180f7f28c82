"""`POST /v1/decisions`: one input, ordered questions with names, answers in their order."""

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.gateway.body import decode
from mainspring.gateway.calls import Floats, Stages
from mainspring.gateway.routes._once import answered_once
from mainspring.gateway.routes._questions import call_of, confidence, described, expected, options, yes_no
from mainspring.gateway.schemas import (
    CachedTokens,
    DecisionChoice,
    DecisionChoiceAnswer,
    DecisionPredicate,
    DecisionScore,
    DecisionScoreAnswer,
    DecisionsIn,
    DecisionsOut,
    DecisionsUsage,
    LevelShare,
    PredicateAnswer,
    ValueShare,
)
from mainspring.gateway.service import Gateway
from mainspring.gateway.visit import visit_of
from mainspring.text.question import MAX_OPTIONS, Question

PATHS = ("/v1/decisions", "/decisions")
MAX_LEVELS = 10
Answer = PredicateAnswer | DecisionChoiceAnswer | DecisionScoreAnswer
_DECODER = msgspec.json.Decoder(DecisionsIn)


def routes(gateway: Gateway) -> list[BaseRoute]:
    async def decisions(request: Request) -> Response:
        visit = visit_of(request)
        visit.route = "/v1/decisions"
        asked, body = await decode(request, _DECODER)
        questions = tuple(question_of(index, each) for index, each in enumerate(asked.questions))
        call = await call_of(visit, model=asked.model, span=asked.input, questions=questions,
                             fields=("input", "questions"), size=visit.held_bytes)  # fmt: skip

        async def compute() -> tuple[DecisionsOut, Stages]:
            scored = await gateway.score(call)
            answers = [answer_of(each, row) for each, row in zip(asked.questions, scored.rows, strict=True)]
            tokens, cached = scored.input_tokens, scored.stages.cached_tokens
            usage = DecisionsUsage(tokens, CachedTokens(cached), tokens)
            return DecisionsOut(scored.model, answers, usage), scored.stages

        return await answered_once(visit, request, body, compute)

    return [Route(path, decisions, methods=["POST"]) for path in PATHS]


def question_of(index: int, asked: DecisionPredicate | DecisionChoice | DecisionScore) -> Question:
    name, where = asked.name or str(index), f"questions[{index}]"
    if isinstance(asked, DecisionPredicate):
        return yes_no(name, asked.instructions)
    if isinstance(asked, DecisionChoice):
        texts = [described(_shown(each.value), each.description) for each in asked.choices]
        return options(name, asked.instructions, texts, f"{where}.choices", MAX_OPTIONS)
    texts = [described(each.label, each.description) for each in asked.levels]
    return options(name, asked.instructions, texts, f"{where}.levels", MAX_LEVELS)


def _shown(value: str | bool) -> str:
    return value if isinstance(value, str) else str(value).lower()


def answer_of(asked: DecisionPredicate | DecisionChoice | DecisionScore, row: Floats) -> Answer:
    name = UNSET if asked.name is None else asked.name
    if isinstance(asked, DecisionPredicate):
        return PredicateAnswer(float(row[0]), name)
    shares = [float(share) for share in row]
    if isinstance(asked, DecisionChoice):
        values = [each.value for each in asked.choices]
        table = [ValueShare(value, share) for value, share in zip(values, shares, strict=True)]
        return DecisionChoiceAnswer(values[int(row.argmax())], confidence(row), table, name)
    levels = enumerate(zip(asked.levels, shares, strict=True))
    rows = [LevelShare(each.label, value, share) for value, (each, share) in levels]
    return DecisionScoreAnswer(expected(row), confidence(row), rows, name)
