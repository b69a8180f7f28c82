"""Query and items: `POST /v1/score` (a row of label scores an item) and `/v1/generative_scoring` (one score an item).

The query is the view, each item a branch of it: it is read once. With `item_first` every item is a view of its own.
Only the label tokens' logits leave a node, so scores are always normalised over the labels: `apply_softmax` false
would need the whole vocabulary and is refused.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mainspring.errors import MainspringError
from mainspring.gateway.assemble import U32, tokens_of
from mainspring.gateway.body import decode
from mainspring.gateway.calls import Answered, Asking, Floats, Stages, Terms
from mainspring.gateway.errors import ValidationError
from mainspring.gateway.routes._once import answered_once
from mainspring.gateway.schemas import GenerativeIn, ItemsIn, ScoreItemsIn
from mainspring.gateway.service import Gateway
from mainspring.gateway.visit import visit_of
from mainspring.text.bundle import Bundle
from mainspring.text.probability import Calibration, probabilities

Asked = TypeVar("Asked", ScoreItemsIn, GenerativeIn)
MAX_VIEWS = 64
"""Items that are views of their own, in one request."""


class Rows(msgspec.Struct, frozen=True):
    model: str
    rows: list[Floats]
    input_tokens: int
    stages: Stages


_SCORE = msgspec.json.Decoder(ScoreItemsIn)
_GENERATIVE = msgspec.json.Decoder(GenerativeIn)


def routes(gateway: Gateway) -> list[BaseRoute]:
    async def score(request: Request) -> Response:
        """One row of scores an item, in the order of `label_token_ids`."""
        visit_of(request).route = "/v1/score"
        return await _answered(gateway, request, _SCORE, _table)

    async def generative(request: Request) -> Response:
        """The first label's share among all labels."""
        visit_of(request).route = "/v1/generative_scoring"
        return await _answered(gateway, request, _GENERATIVE, _firsts)

    return [
        *(Route(path, score, methods=["POST"]) for path in ("/v1/score", "/score")),
        *(Route(path, generative, methods=["POST"]) for path in ("/v1/generative_scoring", "/generative_scoring")),
    ]


def _table(rows: list[Floats]) -> dict[str, Any]:
    return {"object": "scoring", "scores": [row.tolist() for row in rows]}


def _firsts(rows: list[Floats]) -> dict[str, Any]:
    data = [{"index": index, "object": "score", "score": float(row[0])} for index, row in enumerate(rows)]
    return {"object": "list", "data": data}


async def _answered(
    gateway: Gateway, request: Request, decoder: msgspec.json.Decoder[Asked], shown: Callable[[list[Floats]], Any]
) -> Response:
    asked, body = await decode(request, decoder)
    if not asked.apply_softmax:
        raise ValidationError("scores over the whole vocabulary are not made here; send true", param="apply_softmax")
    _check(asked, gateway.config.limits.items)
    visit = visit_of(request)
    terms = await visit.terms()

    async def compute() -> tuple[dict[str, Any], Stages]:
        found = await _rows(gateway, asked, terms)
        tokens = found.input_tokens
        usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
        return {**shown(found.rows), "model": found.model, "usage": usage}, found.stages

    return await answered_once(visit, request, body, compute)


async def _rows(gateway: Gateway, asked: ItemsIn, terms: Terms) -> Rows:
    bundle = (await gateway.assembler_of(asked.model)).bundle
    query, items, labels = await gateway.pool.run(lambda: _tokens(asked, bundle))
    if asked.item_first:
        return _joined(await _apart(gateway, asked.model, query, items, labels, terms))
    asking = Asking(model=asked.model, view=query, branches=items, labels=(labels,) * len(items), terms=terms)
    return _joined([await gateway.ask(asking)])


def _check(asked: ItemsIn, most: int) -> None:
    items: Sequence[Any] = asked.items
    if asked.item_first:
        most = min(most, MAX_VIEWS)
    if len(items) > most:
        raise ValidationError(f"at most {most} a request{' with item_first' if asked.item_first else ''}",
                              param="items", limit=most, actual=len(items))  # fmt: skip


def _tokens(asked: ItemsIn, bundle: Bundle) -> tuple[U32, tuple[U32, ...], U32]:
    """ValidationError for what is empty, InputError for ids beyond the vocabulary."""
    query = tokens_of(bundle, asked.query, "query")
    items = tuple(tokens_of(bundle, item, f"items[{index}]") for index, item in enumerate(asked.items))
    labels = tokens_of(bundle, asked.label_token_ids, "label_token_ids")
    if not len(query):
        raise ValidationError("at least one token is needed", param="query")
    empty = next((index for index, item in enumerate(items) if not len(item)), None)
    if empty is not None:
        raise ValidationError("at least one token is needed", param=f"items[{empty}]")
    return query, items, labels


async def _apart(
    gateway: Gateway, model: str, query: U32, items: tuple[U32, ...], labels: U32, terms: Terms
) -> list[Answered]:
    """Each item a view, the query its branch; all or none."""
    calls = [
        Asking(model=model, view=item, branches=(query,), labels=(labels,),
               terms=msgspec.structs.replace(terms, request_id=f"{terms.request_id[:120]}.{index}"))
        for index, item in enumerate(items)
    ]  # fmt: skip
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(gateway.ask(call)) for call in calls]
    except* MainspringError as errors:
        raise first_of(errors) from None
    return [task.result() for task in tasks]


def first_of(errors: BaseExceptionGroup[MainspringError]) -> MainspringError:
    """What failed first took the others with it."""
    found = errors.exceptions[0]
    return first_of(found) if isinstance(found, BaseExceptionGroup) else found


def _joined(answers: list[Answered]) -> Rows:
    """Softmax over the labels, without a bundle's calibration: that is fitted for its own questions."""
    rows = [probabilities(np.asarray(row), Calibration()) for each in answers for row in each.logits]
    stages = max((each.stages for each in answers), key=lambda stages: stages.fleet_s)
    return Rows(answers[0].model, rows, sum(each.input_tokens for each in answers), stages)
