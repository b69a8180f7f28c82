"""What the router answers when it can't answer: typed, with the seconds after which a like request would be admitted.

`retry_after_s` is exact seconds from now, None where no retry helps ("do not retry"); the gateway rounds up to whole
seconds. Contention (429) and absence (503) are told apart by type, never by message.
"""

from typing import ClassVar

from mainspring.errors import InputError, MainspringError


class BadShapeError(InputError):
    """A request that can't be scheduled as described: no branches, negative tokens, a class nobody configured."""

    code = "bad_shape"


class BadCostError(InputError):
    """Cost coefficients that are negative, not finite, or all zero."""

    code = "bad_cost"


class BadNodeError(InputError):
    """A node whose declaration can't be used: limits below one, an epoch that goes back."""

    code = "bad_node"


class UnknownModelError(InputError):
    """No node ever offered this model."""

    code = "unknown_model"


class RefusedError(MainspringError):
    """Root of the router's refusals; the request was sound."""

    code = "refused"
    status: ClassVar[int] = 429

    def __init__(self, message: str, *, retry_after_s: float | None = None, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.retry_after_s = retry_after_s


class ContentionError(RefusedError):
    """Would miss its deadline or its class's target if admitted now."""

    code = "contention"


class ExpiredError(RefusedError):
    """Admitted, then the forecast went bad: counts as a miss."""

    code = "expired"


class DeadlineError(RefusedError):
    """The deadline had passed on arrival; no retry can meet it."""

    code = "deadline_passed"


class NoNodeError(RefusedError):
    """The model is known, but no usable node serves it now."""

    code = "no_node"
    status = 503


class CondemnedError(RefusedError):
    """Two nodes died under it, the second while it ran alone."""

    code = "condemned"
    status = 500


class WorkFailedError(RefusedError):
    """A node reported failure for the same shard too often."""

    code = "work_failed"
    status = 500


class LeaseLostError(RefusedError):
    """The node went away after tokens had been streamed."""

    code = "lease_lost"
    status = 503
