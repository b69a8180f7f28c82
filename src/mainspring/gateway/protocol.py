"""HTTP/1.1 connections with the limits that httptools lacks: connections, header bytes, header time, unread bodies.

A connection waits for headers at most `header_s`, from its beginning, after an answer (then `keep_alive_s` first) and
whatever dribbles in between. What follows an answer that came before its body is thrown away, within a size and a time.
"""

import asyncio
import http
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mainspring.gateway.config import GatewayLimits

THROWN_AWAY = 64 << 20
LINGER_S = 5.0
"""For what is left of a body after its answer."""


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
        self._thrown = 0
        self._refusal: tuple[int, str, str] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(503, "too_many_connections", f"limits.connections: {self.limits.connections} are open")
            return
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self.parser is None:
            return
        if self._in_headers:
            self._header_bytes += len(data)
            if self._timer is None:
                self._await_headers()
        elif self.cycle is not None and self.cycle.response_complete:
            self._thrown += len(data)
            if self._thrown > THROWN_AWAY:
                self.transport.abort()
                return
        super().data_received(data)
        if self._in_headers and self._header_bytes > self.limits.header_kib << 10:
            self._too_long()

    # -------------------------------------------------------------- what the parser calls

    def on_message_begin(self) -> None:
        self._in_headers = self._message_open = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self.limits.header_kib << 10:
            self._refusal = (414, "uri_too_long", f"limits.header_kib: {self.limits.header_kib} KiB")
            raise httptools.HttpParserError

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        limits = self.limits
        if len(self.headers) > limits.headers or len(value) > limits.header_kib << 10:
            self._refusal = _too_large(limits)
            raise httptools.HttpParserError

    def on_headers_complete(self) -> None:
        if sum(len(name) + len(value) for name, value in self.headers) > self.limits.header_kib << 10:
            self._refusal = _too_large(self.limits)
            raise httptools.HttpParserError
        self._stop()
        self._in_headers, self._header_bytes, self._thrown = False, 0, 0
        super().on_headers_complete()
        self._close_after = self.cycle is not None and not self.cycle.keep_alive
        if self._close_after:  # by us: a socket closed with unread bytes is reset, and a reset takes the answer with it
            self.cycle.keep_alive = True

    def on_message_complete(self) -> None:
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
        if self._message_open:
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
        self._stop()
        kind = "server_error" if status >= 500 else "invalid_request_error"
        body = b'{"error":{"message":"%b","type":"%b","param":null,"code":"%b"}}' % (
            message.encode(), kind.encode(), code.encode(),
        )  # fmt: skip
        phrase = http.HTTPStatus(status).phrase.encode()
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (status, phrase, len(body), body)
        )
        self.transport.close()


def _too_large(limits: GatewayLimits) -> tuple[int, str, str]:
    return (431, "headers_too_large", f"limits.headers, limits.header_kib: {limits.headers} headers, "
            f"{limits.header_kib} KiB")  # fmt: skip
