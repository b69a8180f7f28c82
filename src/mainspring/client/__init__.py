"""A small client of the HTTP service, blocking (`Client`) and asynchronous (`AsyncClient`).

    with Client("http://127.0.0.1:8000", api_key="...") as client:
        for result in client.score(span, ["the assistant made up a URL"]):
            print(result.id, result.p_present)

Sockets are in `blocking` and `aio`; what is sent, what an answer means and whether to try again is decided in `calls`
and `retries`, which have none. Needs no torch, and nothing else of the house.
"""

from typing import TYPE_CHECKING, Any

from mainspring.client.blocking import Client
from mainspring.client.errors import (
    BusyError,
    KeyRefusedError,
    NoReplyError,
    ReplyError,
    RequestError,
    ServiceError,
    TimedOutError,
    UnavailableError,
)
from mainspring.client.evaluation import evaluation_events
from mainspring.client.records import Answers, BehaviorScore, Received, Scores
from mainspring.client.retries import Retries

if TYPE_CHECKING:
    from mainspring.client.aio import AsyncClient as AsyncClient

__all__ = [
    "Answers", "AsyncClient", "BehaviorScore", "BusyError", "Client", "KeyRefusedError", "NoReplyError", "Received",
    "ReplyError", "RequestError", "Retries", "Scores", "ServiceError", "TimedOutError", "UnavailableError",
    "evaluation_events",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "AsyncClient":
        from mainspring.client.aio import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
