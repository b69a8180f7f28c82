"""What the shell and the client refuse or raise beside the core's refusals."""

from mainspring.core.refusals import ContentionError, RefusedError
from mainspring.errors import InputError, MainspringError, TooLargeError

HTTP_CANCELLED = 499


class PayloadsFullError(ContentionError):
    """The token arrays of waiting requests fill the router's byte cap."""

    code = "router_full"

    def __init__(self, *, limit: int, held: int, more: int) -> None:
        message = (
            f"{more:,} bytes of tokens on top of {held:,} that wait: the router holds at most {limit:,} "
            "(limits.payload_mib)"
        )
        super().__init__(message, retry_after_s=RETRY_S)
        self.limit = limit
        self.actual = held + more


class ClientFullError(ContentionError):
    """The token arrays of one client's waiting requests fill its share."""

    code = "client_full"

    def __init__(self, *, limit: int, held: int, more: int) -> None:
        message = (
            f"{more:,} bytes of tokens on top of {held:,} of this client that wait: one client holds at most {limit:,} "
            "(limits.client_mib)"
        )
        super().__init__(message, retry_after_s=RETRY_S)
        self.limit = limit
        self.actual = held + more


RETRY_S = 1.0
"""A short fixed hint where no forecast can be made."""


class DrainingError(RefusedError):
    """The router is being replaced; its successor will take the request."""

    code = "draining"
    status = 503

    def __init__(self, message: str = "the router is shutting down") -> None:
        super().__init__(message, retry_after_s=RETRY_S)


class SlowReaderError(RefusedError):
    """Tokens came faster than the client's connection took them, for longer than is waited."""

    code = "slow_reader"
    status = 408

    def __init__(self, *, limit: int) -> None:
        super().__init__(f"more than {limit:,} bytes of tokens wait to be read")


class InternalError(MainspringError):
    """A fault of ours while this request was handled; the log has it."""

    code = "internal"


class ConfigError(InputError):
    """A configuration that can't be used; `param` is section and key."""

    code = "bad_config"


class BundleError(MainspringError):
    """A bundle that nobody has, or whose bytes are not those that were offered."""

    code = "bundle"


class LinkLostError(MainspringError):
    """The link ended before the answer. Whether the work was done is not known; nothing is sent twice by itself."""

    code = "link_lost"


class FleetTimeoutError(MainspringError):
    """The router lives and did not answer within the time that the caller gives it."""

    code = "fleet_timeout"


class RequestRefusedError(MainspringError):
    """A router's typed refusal, as a client sees it: `code`, `status` and `retry_after_s` are those of the wire."""

    def __init__(
        self, code: str, message: str, *, status: int, retry_after_s: float | None = None, param: str | None = None
    ) -> None:
        super().__init__(message, param=param)
        self.code = code  # type: ignore[misc]  # of this one error, not of the class
        self.status = status
        self.retry_after_s = retry_after_s


def status_of(error: MainspringError) -> int:
    """The one table from errors to HTTP statuses."""
    if isinstance(error, RefusedError):
        return error.status
    if isinstance(error, TooLargeError):
        return 413
    if error.code == "unknown_model":
        return 404
    return 400 if isinstance(error, InputError) else 500
