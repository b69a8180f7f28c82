"""What stands before every route: host, origin, key, rate, room, drain; request id, errors, one log line, counters.

One plain ASGI application around a router of routes. Errors that routes raise become answers here and nowhere else.
"""

import asyncio
import logging
from typing import Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Message, Receive, Scope, Send

from mainspring.errors import MainspringError
from mainspring.faultlog import described
from mainspring.fleet.errors import InternalError
from mainspring.gateway.errors import (
    RETRY_S,
    BusyError,
    ClosingError,
    HangUpError,
    HostError,
    MethodError,
    NotFoundError,
    OriginError,
    body_of,
    headers_of,
    operation_of,
    status_of,
    surface_of,
)
from mainspring.gateway.headers import RawHeaders, first, request_id_of
from mainspring.gateway.service import Gateway
from mainspring.gateway.visit import Visit
from mainspring.gateway.within import within

log = logging.getLogger("mainspring.gateway.requests")

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN_PATHS = frozenset({"/", "/health", "/health/ready", "/version", "/openapi.json", "/favicon.ico"})
OPEN_PREFIX = "/assets/"
HEALTH = "/health"
UNLOGGED = frozenset({"/health", "/health/ready", "/metrics"})
"""Asked every few seconds by machines: a line where they are refused."""
GONE = 499
CORS_METHODS = b"GET, POST, OPTIONS"
CORS_AGE_S = b"600"
EXPOSED = (
    b"x-request-id, x-slo-class, x-predicted-ms, server-timing, idempotent-replayed, retry-after, "
    b"retry-after-ms, x-should-retry"
)  # fmt: skip


class Front:
    def __init__(self, gateway: Gateway, routes: list[BaseRoute]) -> None:
        self.gateway = gateway
        self._router = Router(routes, redirect_slashes=False)
        paths = {getattr(route, "path", "") for route in routes}
        self._paths = {path for path in paths if "{" not in path}
        self._posts = {
            route.path: route.endpoint
            for route in routes
            if isinstance(route, Route) and route.path in self._paths and route.methods == {"POST"}
        }
        self._tasks: dict[asyncio.Task[Any], Visit] = {}
        config = gateway.config
        self._hosts = LOOPBACK | {config.host.lower(), *(host.lower() for host in config.hosts)}
        self._any_host = "*" in config.hosts or (gateway.keys.required and not config.hosts)

    def cut(self) -> None:
        """The drain's time is over: what is open gets its 503 now."""
        for task, visit in self._tasks.items():
            visit.cut = True
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"no {scope['type']} here")
        gateway, headers = self.gateway, scope["headers"]
        visit = Visit(gateway, headers, scope["path"], request_id_of(headers), gateway.now_s())
        scope["visit"], scope["app"] = visit, self
        answer = _Answer(visit, send, gateway.config.limits.body_s)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a server calls us in one
        self._tasks[task] = visit
        gateway.counts.begin()
        try:
            await self._handle(scope, receive, answer, visit)
        except MainspringError as error:
            await answer.fail(error)
        except HTTPException as error:
            await answer.fail(_of_router(error))
        except asyncio.CancelledError:
            if not visit.cut:
                raise
            task.uncancel()
            await answer.fail(ClosingError("this gateway is being replaced", retry_after_s=RETRY_S))
        except Exception as error:
            log.error("a fault of ours", extra={"fields": {"request_id": visit.request_id, "at": described(error)}})
            await answer.fail(InternalError("internal fault"))
        finally:
            del self._tasks[task]
            visit.leave_line()
            gateway.counts.buffered_bytes -= visit.held_bytes
            self._finish(visit, scope, answer)

    async def _handle(self, scope: Scope, receive: Receive, answer: "_Answer", visit: Visit) -> None:
        method = scope["method"]
        self._check_host(visit)
        self._check_origin(visit, method)
        if method == "OPTIONS":
            await answer.preflight()
            return
        if visit.path not in OPEN_PATHS and not visit.path.startswith(OPEN_PREFIX):
            visit.key = self.gateway.keys.find(_authorization(visit.headers))
        if method != "POST":
            await self._router(scope, receive, answer.send)
            return
        gateway = self.gateway
        if gateway.closing.is_set():
            raise ClosingError("this gateway is being replaced", retry_after_s=RETRY_S)
        most = gateway.config.limits.concurrent
        if gateway.counts.open > most:
            raise BusyError(f"limits.concurrent: {most} requests are open already", retry_after_s=RETRY_S,
                            limit=most, actual=gateway.counts.open)  # fmt: skip
        if visit.path in self._paths:
            visit.route = visit.path  # for what is refused before the route says so itself
        gateway.pressure.check(visit.began_s, gateway.counts.open - 1)
        gateway.ledger.enter(visit.key, visit.began_s)
        try:
            endpoint = self._posts.get(visit.path)
            if endpoint is None:
                await self._router(scope, receive, answer.send)
            else:  # what a router adds to this is for errors, which are answered here
                response = await endpoint(Request(scope, receive, answer.send))
                await response(scope, receive, answer.send)
        finally:
            gateway.ledger.leave(visit.key)

    def _check_host(self, visit: Visit) -> None:
        """Names that point here by somebody else's DNS are not ours. Probes ask by address."""
        if self._any_host or visit.path.startswith(HEALTH):
            return
        host = first(visit.headers, b"host").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
        if name.strip("[]") not in self._hosts:
            raise HostError("this gateway does not answer to that Host; list it in gateway.hosts", param="host")

    def _check_origin(self, visit: Visit, method: str) -> None:
        """A browser sends `Origin` with whatever could do work here; a page of ours has our own host in it."""
        origin = first(visit.headers, b"origin")
        if not origin:
            return
        if origin in self.gateway.config.cors or "*" in self.gateway.config.cors:
            visit.extra = [
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (b"access-control-expose-headers", EXPOSED),
                (b"vary", b"Origin"),
            ]
        elif method in ("POST", "OPTIONS") and not _is_own(origin, first(visit.headers, b"host")):
            raise OriginError("pages of this origin may not use it; list it in gateway.cors", param="origin")

    def _finish(self, visit: Visit, scope: Scope, answer: "_Answer") -> None:
        gateway = self.gateway
        took_s = gateway.now_s() - visit.began_s
        gateway.counts.end(visit.route, answer.status, visit.code)
        if scope["method"] == "POST":
            operation = operation_of(visit.path)
            gateway.metrics.finished(operation, visit.slo or "none", visit.code or "ok", took_s)
        elif visit.path in UNLOGGED and not visit.code:
            return
        fields: dict[str, object] = {
            "request_id": visit.request_id, "method": scope["method"], "route": visit.route, "status": answer.status,
            "ms": round(1000.0 * took_s, 2), "class": visit.slo, "key": visit.key.name,
        }  # fmt: skip
        if visit.code:
            fields["reason"] = visit.code
        if visit.stages is not None:
            stages = visit.stages
            for name in ("wait", "text", "queue", "device", "fleet"):
                gateway.metrics.stage(name, getattr(stages, f"{name}_s"))
            fields |= {"text_ms": round(1000.0 * stages.text_s, 2), "fleet_ms": round(1000.0 * stages.fleet_s, 2),
                       "device_ms": round(1000.0 * stages.device_s, 2)}  # fmt: skip
        log.info("request", extra={"fields": fields})


class _Answer:
    """`send` for routes: adds the headers every answer has, knows whether one has begun, waits for slow readers within
    `send_s`."""

    def __init__(self, visit: Visit, send: Send, send_s: float) -> None:
        self._visit, self._send, self._send_s = visit, send, send_s
        self.status = GONE
        self.begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            visit = self._visit
            self.begun, self.status = True, message["status"]
            extra = [(b"x-request-id", visit.request_id.encode()), *visit.extra]
            if visit.slo:
                extra.append((b"x-slo-class", visit.slo.encode("ascii", "replace")))
            message["headers"] = [*message["headers"], *extra]
            await self._send(message)  # they go out with the body's first bytes
            return
        try:
            await within(self._send_s, self._told(message))
        except TimeoutError:
            raise HangUpError(f"limits.body_s: the client read nothing for {self._send_s:g} s") from None

    async def _told(self, message: Message) -> None:
        await self._send(message)

    async def fail(self, error: MainspringError) -> None:
        """Where the answer has begun nothing can be said any more: the server closes the connection."""
        self._visit.code = error.code
        if self.begun or isinstance(error, HangUpError):
            self.status = GONE if isinstance(error, HangUpError) else self.status
            return
        surface = surface_of(self._visit.path)
        body = body_of(error, surface)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers_of(error)]
        await self.send({"type": "http.response.start", "status": status_of(error, surface), "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def preflight(self) -> None:
        """Without a listed origin there is nothing in it that a browser takes for a yes."""
        headers: list[tuple[bytes, bytes]] = [(b"allow", CORS_METHODS)]
        if self._visit.extra:
            headers += [
                (b"access-control-allow-methods", CORS_METHODS),
                (b"access-control-allow-headers", b"*, authorization"),
                (b"access-control-max-age", CORS_AGE_S),
            ]
        await self.send({"type": "http.response.start", "status": 204, "headers": headers})
        await self.send({"type": "http.response.body", "body": b""})


def _authorization(headers: RawHeaders) -> str:
    """Anthropic's clients send their key in a header of its own."""
    given = first(headers, b"authorization")
    return given if given or not (key := first(headers, b"x-api-key")) else f"Bearer {key}"


def _is_own(origin: str, host: str) -> bool:
    """Whether a page of this origin came from the host that is asked."""
    try:
        name = urlsplit(origin).netloc
    except ValueError:
        return False
    return bool(name) and name.lower() == host.lower()


def _of_router(error: HTTPException) -> MainspringError:
    if error.status_code == 405:
        return MethodError("this path does not take that method", headers=dict(error.headers or {}))
    return NotFoundError("there is nothing here")
