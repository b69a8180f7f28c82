"""What a round costs, learnt from every one: `d0 + d1 * slots + d2 * context`, and the tokens it yields a slot.

Non-negative least squares of relative error over the last rounds, drawn weakly to what was known before, since a window
of like rounds can't tell its terms apart. One slow round in sixteen moves nothing: what is beyond thrice the prediction
is left out unless a quarter of the window is.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from mainspring.core.cost import RoundCost, nnls, usable

WINDOW = 256
REFIT_EVERY = 16
FAR = 3.0
TOLD = 0.05
"""A router hears of terms and tokens that moved by more than this share."""
TOKENS_DECAY = 0.02


@dataclass
class RoundFit:
    """`cost` to plan with; `told` what was offered or reported last."""

    cost: RoundCost
    told: RoundCost = field(init=False)
    rounds: int = 0

    def __post_init__(self) -> None:
        self.cost.check()
        self.told = self.cost
        self._window: deque[tuple[int, int, float]] = deque(maxlen=WINDOW)
        self._tokens = self.cost.tokens

    def note(self, slots: int, context: int, seconds: float, tokens: int) -> None:
        """A round of `slots` streams with `context` tokens together took so long and gave so many tokens in all."""
        if slots < 1 or not usable(seconds):
            return
        self.rounds += 1
        self._tokens += TOKENS_DECAY * (max(1.0, tokens / slots) - self._tokens)
        self._window.append((slots, context, seconds))
        if self.rounds % REFIT_EVERY == 0 or self.rounds in (2, 4, 8):
            self._refit()

    @property
    def moved(self) -> bool:
        """By enough to tell."""
        old, new = self.told, self.cost
        slots, context = self._typical()
        before, after = old.seconds(slots, context), new.seconds(slots, context)
        return abs(after - before) > TOLD * before or abs(new.tokens - old.tokens) > TOLD * old.tokens

    def tell(self) -> RoundCost:
        self.told = self.cost
        return self.cost

    def _typical(self) -> tuple[int, int]:
        slots, context, _ = self._window[-1] if self._window else (1, 0, 0.0)
        return slots, context

    def _refit(self) -> None:
        window = list(self._window)
        near = [each for each in window if each[2] <= FAR * self.cost.seconds(each[0], each[1])]
        if 4 * len(near) >= 3 * len(window):
            window = near
        data = np.asarray(window, np.float64)
        times = data[:, 2:3]
        design = np.concatenate([np.ones_like(times), data[:, :2]], axis=1) / times
        scale = np.maximum(design.max(axis=0), 1e-300)
        prior = np.array([self.cost.d0, self.cost.d1, self.cost.d2]) * scale
        values, _ = nnls(design / scale, prior, pull=1e-2)
        d0, d1, d2 = (float(value) for value in values / scale)
        if d0 + d1 > 0.0:
            self.cost = RoundCost(d0, d1, d2, self._tokens)
