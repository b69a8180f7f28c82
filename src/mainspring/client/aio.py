"""`AsyncClient`: the same calls on an event loop, over aiohttp. Cancelling the task cancels the work in the service.

async with AsyncClient("http://127.0.0.1:8000") as client:
    scores = await client.score(span, ["the assistant made up a URL"])
"""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import aiohttp

from mainspring.client import requests as r
from mainspring.client.attempts import Attempts, Reply, Sending, Wait
from mainspring.client.errors import ReplyError
from mainspring.client.records import Answers, Scores
from mainspring.client.retries import Retries

CHUNK_BYTES = 256 << 10


class AsyncClient:
    """As `Client`; `connections` at once, further calls wait for one within `timeout_s`. Use within one event loop."""

    def __init__(
        self, url: str = "http://127.0.0.1:8000", *, api_key: str | None = None, model: str = "",
        timeout_s: float = 60.0, retries: Retries | None = None, tls: ssl.SSLContext | None = None,
        connections: int = 256, now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:  # fmt: skip
        self._where, self._base = r.Where.of(url), r.base_headers(api_key)
        self._model, self._timeout_s, self._retries = model, timeout_s, retries or Retries()
        self._tls, self._connections = tls, connections
        self._now_s, self._sleep = now_s, sleep
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "AsyncClient":
        connector = aiohttp.TCPConnector(limit=self._connections, ssl=True if self._tls is None else self._tls)
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=True, cookie_jar=aiohttp.DummyCookieJar()
        )
        return self

    async def __aexit__(self, *_error: object) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # -------------------------------------------------------------- calls

    async def score(
        self, span: Any, behaviors: Sequence[r.BehaviorLike], *, model: str | None = None, slo_class: str | None = None,
        deadline_s: float | None = None, traceparent: str | None = None, idempotency_key: str | None = None,
    ) -> Scores:  # fmt: skip
        """One span (JSON of any format that the service knows) against many behaviors, in one request."""
        asked = r.behaviors_of(behaviors)
        body = {"model": self._model if model is None else model, "span": span, "behaviors": asked}
        call = r.post(self._base, "/v1/scores", body, span=span, slo_class=slo_class, traceparent=traceparent,
                      idempotency_key=idempotency_key)  # fmt: skip
        reply = await self._run(call, deadline_s)
        return r.read_scores(reply.body, reply.received, asked)

    async def ask(
        self, state: Any, questions: Mapping[str, Any], *, model: str | None = None, slo_class: str | None = None,
        deadline_s: float | None = None, traceparent: str | None = None, idempotency_key: str | None = None,
    ) -> Answers:  # fmt: skip
        """Yes or no, a choice, a score: `questions` as `/v1/systemone` takes them, by id."""
        body = {"model": self._model if model is None else model, "state": state, "questions": questions}
        call = r.post(self._base, "/v1/systemone", body, span=state, slo_class=slo_class, traceparent=traceparent,
                      idempotency_key=idempotency_key)  # fmt: skip
        reply = await self._run(call, deadline_s)
        return r.read_answers(reply.body, reply.received)

    async def models(self) -> list[str]:
        """Names of the models that can be asked now."""
        return r.names(await self._get("/v1/models"))

    async def version(self) -> dict[str, Any]:
        return r.read(await self._get("/version"), dict[str, Any])

    async def status(self) -> dict[str, Any]:
        """Nodes, queues, classes, as `/status` tells them."""
        return r.read(await self._get("/status"), dict[str, Any])

    # -------------------------------------------------------------- within

    async def _get(self, path: str) -> bytes:
        return (await self._run(r.Call("GET", path, self._base), None)).body

    async def _run(self, call: r.Call, deadline_s: float | None) -> Reply:
        attempts = Attempts(call, self._retries, timeout_s=self._timeout_s, deadline_s=deadline_s, now_s=self._now_s())
        while True:
            sending = attempts.begin(self._now_s())
            try:
                status, headers, body = await self._send(call, sending)
            except TimeoutError:  # aiohttp's own are of this kind too
                outcome: Reply | Wait = attempts.broke("", self._now_s(), timed_out=True)
            except (OSError, aiohttp.ClientError) as error:
                where = f"{self._where.host}:{self._where.port}"
                outcome = attempts.broke(f"no answer from {where}: {type(error).__name__}", self._now_s())
            else:
                outcome = attempts.answered(status, headers, body, self._now_s())
            if isinstance(outcome, Reply):
                return outcome
            await self._sleep(outcome.seconds)

    async def _send(self, call: r.Call, sending: Sending) -> tuple[int, dict[str, str], bytes]:
        if self._session is None:
            raise RuntimeError("use `async with AsyncClient(...) as client`")
        where = self._where
        host = f"[{where.host}]" if ":" in where.host else where.host
        async with (
            asyncio.timeout(sending.timeout_s),
            self._session.request(
                call.method, f"{where.scheme}://{host}:{where.port}{where.prefix}{call.path}", data=call.body or None,
                headers=sending.headers, allow_redirects=False,
            ) as response,
        ):  # fmt: skip
            parts: list[bytes] = []
            size = 0
            async for part in response.content.iter_chunked(CHUNK_BYTES):
                size += len(part)
                if size > r.REPLY_BYTES:
                    raise ReplyError(f"the answer is larger than {r.REPLY_BYTES:,} bytes", reason="bad_reply")
                parts.append(part)
            return response.status, {name.lower(): value for name, value in response.headers.items()}, b"".join(parts)
