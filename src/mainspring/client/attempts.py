"""One call from its first try to its end, without sockets: what to send, how long to wait, what an answer means.

attempts = Attempts(call, retries, timeout_s, deadline_s, now_s)
while True:
    sending = attempts.begin(now_s)                      # headers and time limit of this try
    outcome = attempts.answered(status, headers, body, now_s)   # or attempts.broke(...)
    # Wait: sleep so long and begin again; Reply: done; else a ServiceError was raised
"""

import random
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from mainspring.client.errors import NoReplyError, TimedOutError, kind_of
from mainspring.client.records import Received
from mainspring.client.requests import DEADLINE, Call
from mainspring.client.retries import Retries, told_s

MESSAGE_CHARS = 2000


class Sending(Struct, frozen=True):
    headers: dict[str, str]
    timeout_s: float


class Wait(Struct, frozen=True):
    seconds: float


class Reply(Struct, frozen=True):
    body: bytes
    received: Received


class Attempts:
    """Times are on one monotone clock of the caller's. `deadline_s` counts from `now_s`, over all tries: the service is
    told what is left of it."""

    def __init__(
        self, call: Call, retries: Retries, *, timeout_s: float, deadline_s: float | None, now_s: float,
        chance: Callable[[], float] = random.random,
    ) -> None:  # fmt: skip
        self._call, self._retries, self._timeout_s, self._chance = call, retries, timeout_s, chance
        self._began_s = now_s
        self._due_s = None if deadline_s is None else now_s + deadline_s
        self._tries = 0

    def begin(self, now_s: float) -> Sending:
        """TimedOutError where nothing is left of the deadline."""
        headers, timeout_s = dict(self._call.headers), self._timeout_s
        if self._due_s is not None:
            left_s = self._due_s - now_s
            if left_s <= 0.0:
                raise TimedOutError("the deadline has passed", reason="deadline", attempts=max(1, self._tries))
            headers[DEADLINE] = str(max(1, round(1e3 * left_s)))
            timeout_s = min(timeout_s, left_s)
        self._tries += 1
        return Sending(headers, timeout_s)

    def answered(self, status: int, headers: Mapping[str, str], body: bytes, now_s: float) -> Reply | Wait:
        """`headers` by lower-case names."""
        if 200 <= status < 300:
            return Reply(body, self._received(headers))
        delay = self._delay(status, headers, now_s)
        if delay is not None:
            return Wait(delay)
        message, reason, limit, param = complaint(body)
        raise kind_of(status)(
            message or f"the service answered {status}", status=status, reason=reason, limit=limit, param=param,
            retry_after_s=told_s(headers), request_id=headers.get("x-request-id", "")[:128], attempts=self._tries,
        )  # fmt: skip

    def broke(self, why: str, now_s: float, *, timed_out: bool = False) -> Wait:
        """No answer: nobody there, the connection broke, or `Sending.timeout_s` passed (which is not tried again: the
        next try would wait as long)."""
        if timed_out:
            raise TimedOutError(
                f"no answer within {now_s - self._began_s:.3g} s", reason="timeout", attempts=self._tries
            )
        delay = self._delay(0, {}, now_s)
        if delay is None:
            raise NoReplyError(why, reason="no_reply", attempts=self._tries)
        return Wait(delay)

    def _delay(self, status: int, headers: Mapping[str, str], now_s: float) -> float | None:
        return self._retries.after(
            self._tries, status, headers, elapsed_s=now_s - self._began_s,
            left_s=None if self._due_s is None else self._due_s - now_s, chance=self._chance(),
        )  # fmt: skip

    def _received(self, headers: Mapping[str, str]) -> Received:
        try:
            predicted_ms: float | None = float(headers["x-predicted-ms"])
        except (KeyError, ValueError):
            predicted_ms = None
        return Received(
            request_id=headers.get("x-request-id", "")[:128], slo_class=headers.get("x-slo-class", "")[:64],
            predicted_ms=predicted_ms, server_timing=headers.get("server-timing", "")[:1024], attempts=self._tries,
        )  # fmt: skip


def complaint(body: bytes) -> tuple[str, str, float | None, str | None]:
    """(message, reason, limit, param) of an error's body in either surface: `{"detail", "reason", "limit", "param"}` or
    `{"error": {"message", "code", "param"}}`. What is neither says nothing: a proxy's page is not repeated."""
    try:
        told = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "", "", None, None
    if not isinstance(told, dict):
        return "", "", None, None
    inner = told.get("error")
    if isinstance(inner, dict):
        told = {"detail": inner.get("message"), "reason": inner.get("code"), **inner}
    limit, param = told.get("limit"), told.get("param")
    return (
        _text(told.get("detail")),
        _text(told.get("reason"))[:128],
        float(limit) if isinstance(limit, int | float) and not isinstance(limit, bool) else None,
        param[:256] if isinstance(param, str) else None,
    )


def _text(value: object) -> str:
    return value[:MESSAGE_CHARS] if isinstance(value, str) else ""
