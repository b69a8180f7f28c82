"""Query and items: `POST /v1/score` (a row of label scores an item) and `/v1/generative_scoring` (one score an item).

The query is the view, each item a branch of it: it is read once. With `item_first` every item is a view of its own.
Without `apply_softmax` a score is the label's probability among the whole vocabulary. Nodes give logits of labels
alone, at most `MAX_LABELS` a branch, so an item is asked in as many branches as the vocabulary needs: exact, and dear.
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
from mainspring.fleet.admission import MAX_LABELS
from mainspring.gateway.assemble import F32, U32, tokens_of
from mainspring.gateway.body import decode
from mainspring.gateway.calls import Answered, Asking, Floats, Stages, Terms
from mainspring.gateway.errors import ValidationError
from mainspring.gateway.routes._once import answered_once
from mainspring.gateway.schemas import (
    GenerativeIn,
    GenerativeOut,
    ItemScore,
    ItemsIn,
    PromptUsage,
    ScoreItemsIn,
    ScoreItemsOut,
)
from mainspring.gateway.service import Gateway
from mainspring.gateway.visit import visit_of
from mainspring.text.bundle import Bundle
from mainspring.text.probability import Calibration, probabilities

Asked = TypeVar("Asked", ScoreItemsIn, GenerativeIn)
MAX_VIEWS = 64
"""Items that are views of their own, in one request."""
WHOLE_ITEMS = 64
"""Items of a request that are read against the whole vocabulary."""


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


def _table(found: Rows, usage: PromptUsage) -> ScoreItemsOut:
    return ScoreItemsOut([row.tolist() for row in found.rows], found.model, usage)


def _firsts(found: Rows, usage: PromptUsage) -> GenerativeOut:
    return GenerativeOut([ItemScore(index, float(row[0])) for index, row in enumerate(found.rows)], found.model, usage)


async def _answered(
    gateway: Gateway, request: Request, decoder: msgspec.json.Decoder[Asked],
    shown: Callable[[Rows, PromptUsage], Any],
) -> Response:  # fmt: skip
    asked, body = await decode(request, decoder)
    _check(asked, gateway.config.limits.items)
    visit = visit_of(request)
    terms = await visit.terms()

    async def compute() -> tuple[Any, Stages]:
        found = await _rows(gateway, asked, terms)
        return shown(found, PromptUsage(found.input_tokens, found.input_tokens)), found.stages

    return await answered_once(visit, request, body, compute)


async def _rows(gateway: Gateway, asked: ScoreItemsIn | GenerativeIn, terms: Terms) -> Rows:
    bundle = (await gateway.assembler_of(asked.model)).bundle
    query, items, labels = await gateway.pool.run(lambda: _tokens(asked, bundle))
    if not asked.apply_softmax:
        return await _whole(gateway, asked, query, items, labels, bundle.tokenizer.vocab_size, terms)
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
    failed = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(gateway.ask(call)) for call in calls]
    except* MainspringError as errors:  # early versions of Python 3.11 wrap in a group what is raised in here
        failed = first_of(errors)
    if failed is not None:
        answered = [task.result() for task in tasks if not task.cancelled() and task.exception() is None]
        gateway.give_back(terms, sum(each.input_tokens for each in answered))
        raise failed
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


async def _whole(
    gateway: Gateway, asked: ItemsIn, query: U32, items: tuple[U32, ...], labels: U32, size: int, terms: Terms
) -> Rows:
    """An item after the other, so that at most one vocabulary's logits of a request are anywhere at a time: the query
    is kept on its node from the first to the last. All or none. What is charged is what `usage` says: each item once,
    however many blocks it is asked in. TooLargeError, ValidationError."""
    if len(items) > WHOLE_ITEMS:
        raise ValidationError(f"at most {WHOLE_ITEMS} a request without apply_softmax", param="items",
                              limit=WHOLE_ITEMS, actual=len(items))  # fmt: skip
    blocks = tuple(np.split(np.arange(size, dtype=np.uint32), range(MAX_LABELS, size, MAX_LABELS)))
    rows: list[Floats] = []
    stages = Stages()
    model, tokens = "", 0
    for index, item in enumerate(items):
        view, branch = query, item
        counted = len(item) + (len(query) if asked.item_first or index == 0 else 0)
        if asked.item_first:  # a branch of one token: it is asked once a block
            joined = np.concatenate([item, query])
            view, branch = joined[:-1], joined[-1:]
        part = msgspec.structs.replace(terms, request_id=f"{terms.request_id[:120]}.{index}")
        try:
            found = await gateway.ask(
                Asking(model=asked.model, view=view, branches=(branch,) * len(blocks), labels=blocks, terms=part,
                       tokens=counted)
            )  # fmt: skip
        except BaseException:  # also who hangs up
            gateway.give_back(terms, tokens)
            raise
        rows.append(shares_of_all(np.concatenate(found.logits), labels))
        model, stages = found.model, max(stages, found.stages, key=lambda each: each.fleet_s)
        tokens += counted
    return Rows(model, rows, tokens, stages)


def shares_of_all(logits: F32, labels: U32) -> Floats:
    """Of logits [vocabulary] the probabilities of `labels`. LogitError."""
    found: Floats = probabilities(logits, Calibration())[labels]
    return found
