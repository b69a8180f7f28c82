"""`POST /v1/systemone`: one state, a map of typed questions, an answer under each of their ids."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.gateway.body import decode
from mainspring.gateway.calls import Floats, Stages
from mainspring.gateway.routes._once import answered_once
from mainspring.gateway.routes._questions import (
    call_of,
    confidence,
    described,
    expected,
    options,
    text_of,
    yes_no,
)
from mainspring.gateway.schemas import (
    ChoiceAnswer,
    ChoiceQuestion,
    NoulAnswer,
    NoulQuestion,
    ScoreAnswer,
    ScoreQuestion,
    SystemOneIn,
    SystemOneOut,
    TokenUsage,
)
from mainspring.gateway.service import Gateway
from mainspring.gateway.visit import visit_of
from mainspring.text.question import MAX_OPTIONS, Question

PATHS = ("/v1/systemone", "/systemone")
MAX_LEVELS = 10
_DECODER = msgspec.json.Decoder(SystemOneIn)


def routes(gateway: Gateway) -> list[BaseRoute]:
    async def systemone(request: Request) -> Response:
        visit = visit_of(request)
        visit.route = "/v1/systemone"
        asked, body = await decode(request, _DECODER)
        questions = tuple(question_of(name, each) for name, each in asked.questions.items())
        call = await call_of(visit, model=asked.model, span=asked.state, questions=questions,
                             fields=("state", "questions"), size=visit.held_bytes, named=True)  # fmt: skip

        async def compute() -> tuple[SystemOneOut, Stages]:
            scored = await gateway.score(call)
            answers = {
                name: answer_of(each, row)
                for (name, each), row in zip(asked.questions.items(), scored.rows, strict=True)
            }  # fmt: skip
            return SystemOneOut(scored.model, answers, TokenUsage(scored.input_tokens)), scored.stages

        return await answered_once(visit, request, body, compute)

    return [Route(path, systemone, methods=["POST"]) for path in PATHS]


def question_of(name: str, asked: NoulQuestion | ChoiceQuestion | ScoreQuestion) -> Question:
    where = f"questions.{name[:64]}.criteria"
    if isinstance(asked, NoulQuestion):
        criteria = asked.criteria
        return yes_no(name, asked.instructions, criteria and criteria.true, criteria and criteria.false)
    if isinstance(asked, ChoiceQuestion):
        texts = [described(option, text) for option, text in asked.criteria.items()]
        return options(name, asked.instructions, texts, where, MAX_OPTIONS) if len(texts) != 1 else _only(name, asked)
    return options(name, asked.instructions, [text_of(level) for level in asked.criteria], where, MAX_LEVELS)


def _only(name: str, asked: ChoiceQuestion) -> Question:
    """One option is no question, but the shape allows it: it is asked as yes or no and answered as certain."""
    (option, text), *_ = asked.criteria.items()
    return yes_no(name, asked.instructions, described(option, text))


def answer_of(
    asked: NoulQuestion | ChoiceQuestion | ScoreQuestion, row: Floats
) -> NoulAnswer | ChoiceAnswer | ScoreAnswer:
    if isinstance(asked, NoulQuestion):
        return NoulAnswer(float(row[0]))
    shares = [float(share) for share in row]
    if isinstance(asked, ChoiceQuestion):
        names = list(asked.criteria)
        if len(names) == 1:
            return ChoiceAnswer(names[0], {names[0]: 1.0}, 1.0)
        return ChoiceAnswer(names[int(row.argmax())], dict(zip(names, shares, strict=True)), confidence(row))
    return ScoreAnswer(
        score=expected(row),
        probabilities={str(level): share for level, share in enumerate(shares)},
        legend={str(level): text_of(text) for level, text in enumerate(asked.criteria)},
        confidence=confidence(row),
    )
