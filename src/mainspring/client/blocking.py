"""`Client`: blocking calls over the standard library's HTTP. Threads may share one; each call takes a connection.

Connections are kept and used again; one that the service closed meanwhile is noticed on use and replaced at once, which
is no try of its own: calls are idempotent by their key.
"""

import http.client
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from mainspring.client import requests as r
from mainspring.client.attempts import Attempts, Reply, Sending, Wait
from mainspring.client.errors import ReplyError
from mainspring.client.records import Answers, Scores
from mainspring.client.retries import Retries

IDLE = 32
"""Connections kept."""
CHUNK_BYTES = 256 << 10


class Client:
    """`url` with or without /v1. `timeout_s` bounds each try: connecting, each wait for the answer's head, the whole of
    its body. Every method raises ServiceError (`client.errors`), and InputError for what can't be sent."""

    def __init__(
        self, url: str = "http://127.0.0.1:8000", *, api_key: str | None = None, model: str = "",
        timeout_s: float = 60.0, retries: Retries | None = None, tls: ssl.SSLContext | None = None,
        now_s: Callable[[], float] = time.monotonic, sleep: Callable[[float], object] = time.sleep,
    ) -> None:  # fmt: skip
        self._where, self._base = r.Where.of(url), r.base_headers(api_key)
        self._model, self._timeout_s, self._retries = model, timeout_s, retries or Retries()
        self._tls = tls if tls is not None or self._where.scheme == "http" else ssl.create_default_context()
        self._now_s, self._sleep = now_s, sleep
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = Lock()
        self._closed = False

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Idle connections are closed, those in use when their call ends."""
        with self._lock:
            self._closed, idle, self._idle = True, self._idle, []
        for connection in idle:
            connection.close()

    # -------------------------------------------------------------- calls

    def score(
        self, span: Any, behaviors: Sequence[r.BehaviorLike], *, model: str | None = None, slo_class: str | None = None,
        deadline_s: float | None = None, traceparent: str | None = None, idempotency_key: str | None = None,
    ) -> Scores:  # fmt: skip
        """One span (JSON of any format that the service knows) against many behaviors, in one request."""
        asked = r.behaviors_of(behaviors)
        body = {"model": self._model if model is None else model, "span": span, "behaviors": asked}
        call = r.post(self._base, "/v1/scores", body, span=span, slo_class=slo_class, traceparent=traceparent,
                      idempotency_key=idempotency_key)  # fmt: skip
        reply = self._run(call, deadline_s)
        return r.read_scores(reply.body, reply.received, asked)

    def ask(
        self, state: Any, questions: Mapping[str, Any], *, model: str | None = None, slo_class: str | None = None,
        deadline_s: float | None = None, traceparent: str | None = None, idempotency_key: str | None = None,
    ) -> Answers:  # fmt: skip
        """Yes or no, a choice, a score: `questions` as `/v1/systemone` takes them, by id."""
        body = {"model": self._model if model is None else model, "state": state, "questions": questions}
        call = r.post(self._base, "/v1/systemone", body, span=state, slo_class=slo_class, traceparent=traceparent,
                      idempotency_key=idempotency_key)  # fmt: skip
        reply = self._run(call, deadline_s)
        return r.read_answers(reply.body, reply.received)

    def models(self) -> list[str]:
        """Names of the models that can be asked now."""
        return r.names(self._get("/v1/models"))

    def version(self) -> dict[str, Any]:
        return r.read(self._get("/version"), dict[str, Any])

    def status(self) -> dict[str, Any]:
        """Nodes, queues, classes, as `/status` tells them."""
        return r.read(self._get("/status"), dict[str, Any])

    # -------------------------------------------------------------- within

    def _get(self, path: str) -> bytes:
        return self._run(r.Call("GET", path, self._base), None).body

    def _run(self, call: r.Call, deadline_s: float | None) -> Reply:
        attempts = Attempts(call, self._retries, timeout_s=self._timeout_s, deadline_s=deadline_s, now_s=self._now_s())
        while True:
            sending = attempts.begin(self._now_s())
            try:
                status, headers, body = self._send(call, sending)
            except TimeoutError:
                outcome: Reply | Wait = attempts.broke("", self._now_s(), timed_out=True)
            except (OSError, http.client.HTTPException) as error:
                where = f"{self._where.host}:{self._where.port}"
                outcome = attempts.broke(f"no answer from {where}: {_why(error)}", self._now_s())
            else:
                outcome = attempts.answered(status, headers, body, self._now_s())
            if isinstance(outcome, Reply):
                return outcome
            self._sleep(outcome.seconds)

    def _send(self, call: r.Call, sending: Sending) -> tuple[int, dict[str, str], bytes]:
        until_s = self._now_s() + sending.timeout_s
        while (connection := self._take()) is not None:
            try:
                return self._exchange(connection, call, sending, until_s)
            except (ConnectionError, http.client.RemoteDisconnected):
                connection.close()  # closed by the service while it was idle: the next, in the end a new one
        return self._exchange(self._connect(until_s - self._now_s()), call, sending, until_s)

    def _exchange(
        self, connection: http.client.HTTPConnection, call: r.Call, sending: Sending, until_s: float
    ) -> tuple[int, dict[str, str], bytes]:
        try:
            self._limit(connection, until_s)
            connection.request(call.method, self._where.prefix + call.path, call.body or None, sending.headers)
            self._limit(connection, until_s)
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            body = self._read(connection, response, until_s)
        except BaseException:
            connection.close()
            raise
        self._give(connection, keep=not response.will_close)
        return response.status, headers, body

    def _read(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse, until_s: float
    ) -> bytes:
        parts: list[bytes] = []
        size = 0
        while part := response.read1(CHUNK_BYTES):
            size += len(part)
            if size > r.REPLY_BYTES:
                raise ReplyError(f"the answer is larger than {r.REPLY_BYTES:,} bytes", reason="bad_reply")
            parts.append(part)
            self._limit(connection, until_s)
        if response.length:
            raise http.client.IncompleteRead(b"".join(parts), response.length)
        response.close()  # read1() does not notice the end by itself, and the connection waits for it
        return b"".join(parts)

    def _limit(self, connection: http.client.HTTPConnection, until_s: float) -> None:
        left_s = until_s - self._now_s()
        if left_s <= 0.0:
            raise TimeoutError
        if connection.sock is not None:  # closed already where the answer ends the connection and was read whole
            connection.sock.settimeout(left_s)

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        host, port = self._where.host, self._where.port
        if timeout_s <= 0.0:
            raise TimeoutError
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=timeout_s)

    def _take(self) -> http.client.HTTPConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _give(self, connection: http.client.HTTPConnection, *, keep: bool) -> None:
        with self._lock:
            if keep and not self._closed and len(self._idle) < IDLE:
                self._idle.append(connection)
                return
        connection.close()


def _why(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return text or type(error).__name__
