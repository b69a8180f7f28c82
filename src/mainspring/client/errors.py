"""What a call can end with instead of a result. Messages are the service's own and hold no conversation's text."""

from mainspring.errors import MainspringError


class ServiceError(MainspringError):
    """`status` 0: there was no answer. `reason` is the machine-readable one, `limit` the limit that was hit, where the
    answer names them. `retry_after_s`: when the service would take it; `attempts`: how often it was tried."""

    code = "service_error"

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", limit: float | None = None, param: str | None = None,
        retry_after_s: float | None = None, request_id: str = "", attempts: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(message, param=param)
        self.status, self.reason, self.limit = status, reason, limit
        self.retry_after_s, self.request_id, self.attempts = retry_after_s, request_id, attempts


class RequestError(ServiceError):
    """400, 404, 405, 413, 415, 422: sending it again unchanged fails again."""

    code = "request_error"


class KeyRefusedError(ServiceError):
    """401, 403."""

    code = "key_refused"


class BusyError(ServiceError):
    """429: a rate, a quota, or no room to answer in time."""

    code = "busy"


class UnavailableError(ServiceError):
    """500, 502, 503: nobody who could answer it now."""

    code = "unavailable"


class TimedOutError(ServiceError):
    """504: the deadline passed in the service; or no answer within `timeout_s` or `deadline_s` here (status 0)."""

    code = "timed_out"


class NoReplyError(ServiceError):
    """Nobody listens there, or the connection broke."""

    code = "no_reply"


class ReplyError(ServiceError):
    """An answer that is not what the contract says, or larger than allowed."""

    code = "bad_reply"


def kind_of(status: int) -> type[ServiceError]:
    """The class for an HTTP status that is not 2xx."""
    if status in (401, 403):
        return KeyRefusedError
    if status == 429:
        return BusyError
    if status in (408, 504):
        return TimedOutError
    return UnavailableError if status >= 500 else RequestError if 400 <= status < 500 else ReplyError
