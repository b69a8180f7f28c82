"""HTTP/1.1 connections with the limits that httptools lacks: connections, header bytes, header time, unread bodies,
unread answers, requests sent ahead of their answers.

A connection waits for headers at most `header_s`, from its beginning, after an answer (then `keep_alive_s` first) and
whatever dribbles in between. What follows an answer that came before its body is thrown away, within a size and a time.
Whoever leaves more than a buffer of its answer unread for `body_s` is cut off. An upgrade is never taken: the request
that asks for one is answered as it came, its body read like any other (clients that would rather speak h2c ask with the
first request of each connection).
"""

import asyncio
import http
import sys
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from mainspring.gateway.config import GatewayLimits

THROWN_AWAY = 64 << 20
LINGER_S = 5.0
"""For what is left of a body after its answer."""
PIPELINED = 16
"""Requests that wait for the answer before theirs on one connection; one more ends it."""
FRAMING = (b"content-length", b"transfer-encoding")


def guarded(limits: GatewayLimits) -> type[HttpToolsProtocol]:
    """The protocol class for `uvicorn.Config(http=...)`."""
    return type("LimitedProtocol", (GuardedProtocol,), {"limits": limits})


class GuardedProtocol(HttpToolsProtocol):
    limits: GatewayLimits

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._in_headers = True
        self._header_bytes = 0
        self._message_open = self._close_after = False
        self._thrown = self._framing = 0
        self._had_body = self._replaying = False
        self._running: RequestResponseCycle | None = None
        self._refusal: tuple[int, str, str] | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._data = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_Leaving(transport, self.loop, self.limits.body_s))  # type: ignore[arg-type]
        if len(self.connections) > self.limits.connections:
            self._refuse(503, "too_many_connections", f"limits.connections: {self.limits.connections} are open")
            return
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self.resume_writing()
        self.transport.left()  # type: ignore[attr-defined]
        super().connection_lost(exc)
        # uvicorn tells the last request alone; those before it run, or wait for their turn.
        for cycle in (self._running, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.limits.body_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self.parser is None:
            return
        if self._in_headers:
            self._header_bytes += len(data)
        elif self.cycle is not None and self.cycle.response_complete:
            self._thrown += len(data)
            if self._thrown > THROWN_AWAY:
                self.transport.abort()
                return
        self._had_body, self._data = False, data
        was_in_body = not self._in_headers
        super().data_received(data)
        self._data = b""
        if self._in_headers and self._header_bytes and self._timer is None and not self.transport.is_closing():
            self._await_headers()
        if self._in_headers and self._header_bytes > self.limits.header_kib << 10:
            self._too_long()
        elif (
            was_in_body and not self._in_headers
        ):  # extensions of chunks and what trails them: the parser gathers it as one value
            self._framing = 0 if self._had_body else self._framing + len(data)
            if self._framing > self.limits.header_kib << 10:
                self._too_long()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _unsupported_upgrade_warning(self) -> None:
        """The parser takes the message for ended at its headers: another, told the framing alone, reads the rest."""
        found = sys.exc_info()[1]
        rest = self._data[found.args[0] :] if found is not None and found.args else b""
        self.parser = httptools.HttpRequestParser(self)
        lines = [b"%b: %b\r\n" % (name, value) for name, value in self.headers if name in FRAMING]
        self._replaying = True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(lines) + b"\r\n")
        self._replaying = False
        if rest and not self.transport.is_closing():
            self._data = rest
            super().data_received(rest)

    # -------------------------------------------------------------- what the parser calls

    def on_message_begin(self) -> None:
        if self._replaying:
            return
        self._in_headers = self._message_open = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._replaying:
            return
        super().on_url(url)
        if len(self.url) > self.limits.header_kib << 10:
            self._refusal = (414, "uri_too_long", f"limits.header_kib: {self.limits.header_kib} KiB")
            raise httptools.HttpParserError

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._replaying or not self._in_headers:  # what trails a body says nothing about its request
            return
        super().on_header(name, value)
        limits = self.limits
        if len(self.headers) > limits.headers or len(value) > limits.header_kib << 10:
            self._refusal = _too_large(limits)
            raise httptools.HttpParserError

    def on_headers_complete(self) -> None:
        if self._replaying:
            return
        if sum(len(name) + len(value) for name, value in self.headers) > self.limits.header_kib << 10:
            self._refusal = _too_large(self.limits)
            raise httptools.HttpParserError
        self._stop()
        self._in_headers, self._header_bytes, self._thrown, self._framing = False, 0, 0, 0
        super().on_headers_complete()
        if len(self.pipeline) > PIPELINED:
            raise httptools.HttpParserError
        self._close_after = self.cycle is not None and not self.cycle.keep_alive
        if self._close_after:  # by us: a socket closed with unread bytes is reset, and a reset takes the answer with it
            self.cycle.keep_alive = True

    def on_body(self, body: bytes) -> None:
        self._had_body = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # its body comes yet
        super().on_message_complete()
        self._message_open, self._in_headers, self._header_bytes = False, True, 0
        if self.cycle is not None and self.cycle.response_complete:
            self._stop()
            if self._close_after:
                self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._message_open and self.cycle.response_complete:
            self._stop()
            self._timer = self.loop.call_later(min(LINGER_S, self.limits.body_s), self.transport.abort)
        elif self._close_after and self.cycle.response_complete:
            self.transport.close()

    # -------------------------------------------------------------- refusals

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the parser's words are not for clients
        self._refuse(*(self._refusal or (400, "malformed_http", "this is no HTTP request")))

    def timeout_keep_alive_handler(self) -> None:
        """Who has not read its answer by now never will."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def _too_long(self) -> None:
        if not self.transport.is_closing():
            self._refuse(*_too_large(self.limits))

    def _await_headers(self) -> None:
        self._timer = self.loop.call_later(self.limits.header_s, self._slow)

    def _slow(self) -> None:
        self._timer = None
        busy = self.cycle is not None and not self.cycle.response_complete
        if self._in_headers and not busy and not self.transport.is_closing():
            self._refuse(408, "header_timeout", f"limits.header_s: no headers within {self.limits.header_s:g} s")

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Without words where they would be taken for the answer of a request before, or for a part of it."""
        self._stop()
        running = self._running
        if running is not None and not running.response_complete:
            is_another = running is not self.cycle or self._in_headers
            if is_another or running.response_started:
                self.transport.close()
                return
        kind = "server_error" if status >= 500 else "invalid_request_error"
        body = b'{"error":{"message":"%b","type":"%b","param":null,"code":"%b"}}' % (
            message.encode(), kind.encode(), code.encode(),
        )  # fmt: skip
        retry = b"retry-after: 1\r\nretry-after-ms: 1000\r\nx-should-retry: true\r\n" if status == 503 else b""
        phrase = http.HTTPStatus(status).phrase.encode()
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%bconnection: close\r\n\r\n%b"
            % (status, phrase, len(body), retry, body)
        )
        self.transport.close()


class _Leaving:
    """A transport whose `close` does not wait for ever for a peer that reads nothing: within `within_s`. A head and the
    body that follows in the same turn of the loop go out together: one system call and one segment instead of two,
    and the peer wakes once."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, within_s: float) -> None:
        self._transport, self._loop, self._within_s = transport, loop, within_s
        self._timer: asyncio.TimerHandle | None = None
        self._held = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """What comes first in a turn waits for what follows it, and no longer than the turn."""
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held + data)
        elif data:
            self._held = data
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)

    def close(self) -> None:
        self._flush()
        if self._timer is None and not self._transport.is_closing():
            self._timer = self._loop.call_later(self._within_s, self._transport.abort)
        self._transport.close()

    def abort(self) -> None:
        self._held = b""
        self._transport.abort()

    def left(self) -> None:
        """The connection is gone."""
        self._held = b""
        if self._timer is not None:
            self._timer.cancel()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _too_large(limits: GatewayLimits) -> tuple[int, str, str]:
    return (431, "headers_too_large", f"limits.headers, limits.header_kib: {limits.headers} headers, "
            f"{limits.header_kib} KiB")  # fmt: skip
