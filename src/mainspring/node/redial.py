"""When to dial again and how. Pure: an outcome and a number drawn by the caller give a delay and a transport.

Full jitter: anything up to a bound that doubles with each failure, from 0.2 to 30 s, so that a fleet does not come back
all at once; back to the start after a link that lasted a minute. After a hopeless close (`wire.errors.HOPELESS`) at
once the longest bound. QUIC first; after two timeouts of its handshake TCP, and QUIC tried again every ten minutes.
Source of the jitter: Brooker, Exponential Backoff And Jitter, 2015.
"""

from dataclasses import dataclass
from typing import Literal

from mainspring.wire.errors import HOPELESS, Close

FIRST_S = 0.2
LONGEST_S = 30.0
LEAST_S = 0.05
STEADY_S = 60.0
"""A link that lasted so long was a sound one."""
TIMEOUTS = 2
QUIC_AGAIN_S = 600.0

Transport = Literal["quic", "tcp"]
Choice = Literal["auto", "quic", "tcp"]


@dataclass(frozen=True)
class Outcome:
    """How a dialling or a link ended. `lasted_s` since the welcome, None where there was none; `close` None: nobody
    answered."""

    close: Close | None
    lasted_s: float | None = None


@dataclass(frozen=True)
class Dial:
    delay_s: float
    transport: Transport
    why: str


class Redial:
    def __init__(self, choice: Choice = "auto") -> None:
        self._choice = choice
        self._bound_s = FIRST_S
        self._timeouts = 0
        self._tcp_since_s: float | None = None

    @property
    def transport(self) -> Transport:
        """What the next dialling uses, as far as is known now."""
        if self._choice != "auto":
            return self._choice
        return "quic" if self._tcp_since_s is None else "tcp"

    def next(self, outcome: Outcome, now_s: float, chance: float) -> Dial:
        """`chance` in [0, 1) is drawn by the caller."""
        why = self._switch(outcome, now_s)
        if outcome.lasted_s is not None and outcome.lasted_s >= STEADY_S:
            self._bound_s = FIRST_S
        if outcome.close in HOPELESS:
            self._bound_s = LONGEST_S
            delay_s = LONGEST_S * (0.5 + 0.5 * chance)
        else:
            delay_s = max(LEAST_S, self._bound_s * chance)
            self._bound_s = min(LONGEST_S, 2.0 * self._bound_s)
        return Dial(delay_s, self.transport, why)

    def _switch(self, outcome: Outcome, now_s: float) -> str:
        """Between QUIC and TCP, where both are allowed; what to say about it in the log."""
        if self._choice != "auto":
            return ""
        if self._tcp_since_s is not None:
            if now_s - self._tcp_since_s >= QUIC_AGAIN_S:
                self._tcp_since_s, self._timeouts = None, 0
                return "QUIC is tried again"
            return ""
        if outcome.lasted_s is not None:
            self._timeouts = 0
        elif outcome.close is None or outcome.close is Close.IDLE:
            self._timeouts += 1
        if self._timeouts >= TIMEOUTS:
            self._tcp_since_s = now_s
            return f"QUIC was not answered {TIMEOUTS} times, so TCP is tried: is UDP blocked?"
        return ""
