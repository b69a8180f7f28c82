"""A device made slower, honestly: every pass waits until it has taken `factor` times as long, and says so.

For tests and demonstrations of mixed fleets on one machine. Whoever measures sees a slow device.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from mainspring.backend.gauges import Gauges, gauges_of
from mainspring.backend.generation import GenerationBackend, SlotLimits
from mainspring.backend.protocol import NO_STATE, Backend, IntArray, Limits, PackedPass, PassResult
from mainspring.errors import DeviceError


class ThrottledBackend:
    """Implements `Backend` around another one; `factor` at least 1, `sleep(seconds)` is the waiting."""

    def __init__(self, inner: Backend, factor: float, sleep: Callable[[float], None] = time.sleep) -> None:
        if not 1.0 <= factor <= 1000.0:
            raise ValueError(f"a device is made 1 to 1000 times slower, not {factor}")
        self._inner = inner
        self._factor = factor
        self._sleep = sleep

    @property
    def device(self) -> str:
        return f"{self._inner.device}, throttled {self._factor:g} times"

    @property
    def numerics(self) -> str:
        return self._inner.numerics

    @property
    def limits(self) -> Limits:
        return self._inner.limits

    def score_pass(self, work: PackedPass) -> PassResult:
        result = self._inner.score_pass(work)
        self._sleep(result.seconds * (self._factor - 1.0))
        return replace(result, seconds=result.seconds * self._factor)

    def prefill(self, tokens: IntArray, state: int = NO_STATE, *, capacity: int = 0) -> int:
        return self._inner.prefill(tokens, state, capacity=capacity)

    def copy(self, state: int, *, capacity: int = 0) -> int:
        return self._inner.copy(state, capacity=capacity)

    def state_bytes(self, state: int) -> int:
        return self._inner.state_bytes(state)

    def gauges(self) -> Gauges:
        return gauges_of(self._inner)

    def generation(self, limits: SlotLimits) -> GenerationBackend:  # noqa: ARG002
        raise DeviceError("a throttled device does not generate")

    def release(self, state: int) -> None:
        self._inner.release(state)
