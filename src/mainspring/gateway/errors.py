"""What the gateway refuses by itself, and the one table from errors to HTTP answers in both surfaces.

Scoring routes answer `{"detail", "reason", "param"?, "limit"?, "actual"?}`, Anthropic's `{"type": "error", "error":
{"type", "message", "code"}}`, the others `{"error": {"message", "type", "param", "code"}}`. `reason` and `code` are the
error's stable code. Nothing here quotes a conversation.
"""

from math import ceil
from typing import Any, ClassVar, Literal

import msgspec

from mainspring.core.refusals import RefusedError
from mainspring.errors import InputError, MainspringError, MalformedError, SpanError, TooLargeError
from mainspring.fleet.errors import RequestRefusedError

Surface = Literal["scoring", "openai", "anthropic"]
MAX_RETRY_S = 60.0
RETRY_S = 1.0
"""A short fixed hint where no forecast can be made."""
SCORING = ("/scores", "/systemone", "/decisions", "/score", "/generative_scoring")


ANTHROPIC = ("/messages", "/messages/count_tokens")


class GatewayError(MainspringError):
    """Root of the gateway's own refusals. `headers` go into the answer."""

    status: ClassVar[int] = 400

    def __init__(
        self, message: str, *, param: str | None = None, retry_after_s: float | None = None,
        limit: float | None = None, actual: float | None = None, headers: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message, param=param)
        self.retry_after_s, self.limit, self.actual = retry_after_s, limit, actual
        self.headers = headers or {}


class HostError(GatewayError):
    """`Host` names a server that this is not."""

    code, status = "bad_host", 421


class OriginError(GatewayError):
    """A browser page of another origin than those listed."""

    code, status = "origin_not_allowed", 403


class KeyMissingError(GatewayError):
    """No key, or one that is not in the key file."""

    code, status = "bad_key", 401


class ClassForbiddenError(GatewayError):
    """A class above the key's ceiling."""

    code, status = "class_not_allowed", 403


class NotFoundError(GatewayError):
    code, status = "not_found", 404


class MethodError(GatewayError):
    code, status = "method_not_allowed", 405


class BodyTimeoutError(GatewayError):
    code, status = "body_timeout", 408


class MediaTypeError(GatewayError):
    code, status = "unsupported_media_type", 415


class ValidationError(GatewayError):
    """Sound JSON of the wrong shape; `param` is the path of the field."""

    code, status = "validation", 422


class IdempotencyError(GatewayError):
    """The key was used with another body."""

    code, status = "idempotency_conflict", 422


class BusyError(GatewayError):
    """A limit of this gateway on work at once; the message names it."""

    code, status = "gateway_busy", 429


class RateError(GatewayError):
    code, status = "rate_limited", 429


class QuotaError(GatewayError):
    code, status = "quota_exhausted", 429


class ClosingError(GatewayError):
    """This gateway is being replaced."""

    code, status = "draining", 503


class NoRouterError(GatewayError):
    """The link to the router is down, or it has no node for the model yet."""

    code, status = "no_node", 503


class TimedOutError(GatewayError):
    code, status = "timeout", 504


class ContextError(GatewayError):
    """Prompt and reply together are longer than the model reads."""

    code, status = "context_length_exceeded", 400

    def __init__(
        self, context: int, actual: int, *, param: str | None, prompt: int | None = None, reply: int | None = None
    ) -> None:
        what = f"the prompt has {actual:,} tokens" if prompt is None else f"the prompt has {prompt:,} tokens"
        if reply is not None:
            what += f" and the reply may have {reply:,}"
        super().__init__(
            f"this model's maximum context length is {context} tokens; {what}", param=param, limit=context,
            actual=actual,
        )  # fmt: skip


class GenerationFailedError(GatewayError):
    """A reply broke off on its node. `reason` is the wire's."""

    code, status = "generation_failed", 500

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"the reply broke off ({reason}){': ' if message else ''}{message}")
        self.reason = reason


class HangUpError(GatewayError):
    """The client is gone; nobody reads the answer."""

    code, status = "client_gone", 499


def surface_of(path: str) -> Surface:
    """Errors of scoring routes have `detail`, Anthropic's a `type`, all others `error` alone."""
    plain = path.removeprefix("/api").removeprefix("/v1")
    if plain in SCORING:
        return "scoring"
    return "anthropic" if plain in ANTHROPIC else "openai"


def operation_of(path: str) -> str:
    """OpenTelemetry's name of what is done; ours where it has none."""
    plain = path.removeprefix("/api").removeprefix("/v1")
    if plain in SCORING:
        return "score"
    return {"/chat/completions": "chat", "/messages": "chat", "/completions": "text_completion"}.get(plain, "other")


def status_of(error: MainspringError, surface: Surface = "scoring") -> int:
    """The one table. Clients of other surfaces than scoring know a wrong field as 400."""
    status = _status_of(error)
    return 400 if status == 422 and surface != "scoring" else status


def _status_of(error: MainspringError) -> int:
    if isinstance(error, RequestRefusedError | GatewayError):
        return 504 if error.code == "expired" else error.status
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, MalformedError):
        return 400
    if isinstance(error, TooLargeError):
        return 413
    if error.code == "unknown_model":
        return 404
    if error.code in ("link_lost", "bundle"):  # the next request fetches it again
        return 503
    if error.code == "fleet_timeout":
        return 504
    return 422 if isinstance(error, InputError) else 500


def body_of(error: MainspringError, surface: Surface) -> bytes:
    status = status_of(error, surface)
    message = str(error) if status != 500 or isinstance(error, RequestRefusedError | GatewayError) else "internal fault"
    figures = {name: getattr(error, name, None) for name in ("limit", "actual")}
    if surface == "scoring":
        detail = f"bad span: {error.message}" if isinstance(error, SpanError) else message
        fields: dict[str, Any] = {"detail": detail, "reason": error.code, "param": error.param, **figures}
        return msgspec.json.encode({name: value for name, value in fields.items() if value is not None})
    if surface == "anthropic":
        told = {"type": anthropic_type_of(status), "message": message, "code": error.code}
        return msgspec.json.encode({"type": "error", "error": told})
    inner = {"message": message, "type": type_of(status), "param": error.param, "code": error.code}
    return msgspec.json.encode({"error": inner | {name: value for name, value in figures.items() if value is not None}})


def type_of(status: int) -> str:
    """OpenAI's names."""
    known = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    return known.get(status, "server_error" if status >= 500 else "invalid_request_error")


def anthropic_type_of(status: int) -> str:
    """Anthropic's names."""
    known = {
        401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
        429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
    }  # fmt: skip
    return known.get(status, "api_error" if status >= 500 else "invalid_request_error")


def headers_of(error: MainspringError) -> list[tuple[bytes, bytes]]:
    """`Retry-After` in whole seconds, 1 to 60; `retry-after-ms` exact; `x-should-retry` false where none helps."""
    found = [(name.encode(), value.encode()) for name, value in getattr(error, "headers", {}).items()]
    status = status_of(error)
    if status not in (429, 503, 504):
        return found
    retry_s: float | None = getattr(error, "retry_after_s", None)
    if retry_s is None and status in (503, 504):
        retry_s = RETRY_S
    if retry_s is None:
        return [*found, (b"x-should-retry", b"false")]
    helps = retry_s <= MAX_RETRY_S
    shown_s = min(max(retry_s, 0.0), MAX_RETRY_S)
    return [
        *found,
        (b"retry-after", b"%d" % max(1, ceil(shown_s))),
        (b"retry-after-ms", b"%d" % max(1, ceil(1000.0 * shown_s))),
        (b"x-should-retry", b"true" if helps else b"false"),
    ]
