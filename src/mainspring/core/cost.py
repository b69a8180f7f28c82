"""The time of a pass before it runs: `t = c0 + c1*view + c2*rows (+ c3*pairs)`, learnt from every measured pass.

Non-negative least squares of relative error over a window of measurements, with the node's join measurements as
anchors that never leave. One outlier moves nothing: a measurement beyond the band waits as a suspect until three of the
last five agree in direction; only then is it a change of regime and the old window goes. `c3` is admitted only where it
cuts the residuals by a fifth. The ratio measured / predicted is kept as a running distribution: plans for tight targets
multiply by its p99. Source: facts on linear-attention passes.
"""

from bisect import bisect_left, insort
from collections import deque
from itertools import chain
from math import exp, isfinite, log

import numpy as np
from msgspec import Struct

from mainspring.core.nnls import nnls
from mainspring.core.refusals import BadCostError

WINDOW = 96
REFIT_EVERY = 8
BAND = 4.0
"""Deviations (in sigmas of log error, at least MIN_BAND in all) beyond which a measurement is a suspect."""
MIN_BAND = log(1.6)
LONGEST_S = 86_400.0
"""Nothing a node does takes longer: beyond a day a coefficient is a mistake, near the largest float it is a trap."""
Sample = tuple[int, int, int, float]


class Cost(Struct, frozen=True):
    """Seconds: fixed, per view token scanned, per branch row, per attention pair."""

    c0: float
    c1: float
    c2: float
    c3: float = 0.0

    def seconds(self, view: int, rows: int, attention_pairs: int = 0) -> float:
        return self.c0 + self.c1 * view + self.c2 * rows + self.c3 * attention_pairs

    def check(self) -> None:
        terms = (self.c0, self.c1, self.c2, self.c3)
        if not all(0.0 <= term <= LONGEST_S for term in terms):  # also NaN
            raise BadCostError("coefficients must be seconds of a day at most and not negative", param="cost")
        if self.c0 + self.c1 + self.c2 <= 0.0:
            raise BadCostError("a pass can't be free", param="cost")


class RoundCost(Struct, frozen=True):
    """Seconds of one generation round: `d0 + d1*slots + d2*context`; `tokens` are accepted per round and slot."""

    d0: float
    d1: float
    d2: float = 0.0
    tokens: float = 1.0

    def seconds(self, slots: int, context: int) -> float:
        return self.d0 + self.d1 * slots + self.d2 * context if slots else 0.0

    def check(self) -> None:
        if not all(0.0 <= term <= LONGEST_S for term in (self.d0, self.d1, self.d2)):
            raise BadCostError("coefficients must be seconds of a day at most and not negative", param="round_cost")
        if not (isfinite(self.tokens) and self.tokens >= 1.0):
            raise BadCostError("a round yields at least one token", param="round_cost.tokens")


class Verdict(Struct, frozen=True):
    """`fits` is False when half of the recent passes were off by more than 30 %."""

    fits: bool
    median_error: float
    samples: int
    suspects: int


class CostFit:
    """The live model of one node: `cost` to plan with, `late_ratio` (p99) and `early_ratio` (p05) of its error."""

    __slots__ = ("_anchors", "_errors", "_floor", "_order", "_recent", "_since", "_window", "cost", "early_ratio",
                 "late_ratio", "rejected", "suspects")  # fmt: skip

    def __init__(self, cost: Cost, anchors: tuple[Sample, ...] = (), floor: float = 1.03) -> None:
        cost.check()
        self.cost = cost
        self.rejected = 0
        self.suspects = 0
        self._anchors = [sample for sample in anchors if usable(sample[3])]
        self._window: deque[Sample] = deque(maxlen=WINDOW)
        self._errors: deque[float] = deque()
        self._order: list[float] = []
        self._recent: deque[tuple[float, Sample]] = deque(maxlen=5)
        self._since = 0
        self._floor = floor
        self.late_ratio = 1.10
        self.early_ratio = 0.95
        if len(self._anchors) >= 4:
            for _ in range(3):  # the declared cost is a weak prior: let it fade
                self.cost = fit(self._anchors, self.cost)
            for view, rows, attention, measured_s in self._anchors:
                self._note(log(measured_s / max(1e-9, self.cost.seconds(view, rows, attention))))

    def observe(self, view: int, rows: int, attention_pairs: int, measured_s: float) -> None:
        """Learn from a pass. Zero, negative, infinite and NaN times are counted in `rejected` and ignored."""
        if not usable(measured_s):
            self.rejected += 1
            return
        sample = (view, rows, attention_pairs, measured_s)
        error = log(measured_s / max(1e-9, self.cost.seconds(view, rows, attention_pairs)))
        if abs(error) > self._band():
            self._suspect(error, sample)
            return
        self._recent.append((0.0, sample))
        self._window.append(sample)
        self._note(error)
        self._since += 1
        if self._since >= REFIT_EVERY:
            self._refit()

    def refined(self, cost: Cost, anchors: tuple[Sample, ...] | None) -> "CostFit":
        """The same node with better join measurements (None: those it had), on which its last passes are learnt
        again. Raises BadCostError."""
        new = CostFit(cost, tuple(self._anchors) if anchors is None else anchors, self._floor)
        for sample in self._window:
            new.observe(*sample)
        new.rejected += self.rejected
        return new

    @property
    def sure_ratio(self) -> float:
        """About p99.99: the p99 deviation stretched as a log-normal's is from 2.33 to 3.7 sigmas."""
        return 1.0 + 1.6 * (self.late_ratio - 1.0)

    def verdict(self) -> Verdict:
        absolute = sorted(abs(exp(error) - 1.0) for error in self._errors)
        median = absolute[len(absolute) // 2] if absolute else 0.0
        lost = sum(1 for error, _ in self._recent if error)
        return Verdict(median <= 0.3 and lost < 3, median, len(absolute), self.suspects)

    def _band(self) -> float:
        if len(self._order) < 16:
            return max(MIN_BAND, log(3.0))
        n = len(self._order)
        sigma = (self._order[(n * 84) // 100] - self._order[(n * 16) // 100]) / 2
        return max(MIN_BAND, BAND * sigma)

    def _suspect(self, error: float, sample: Sample) -> None:
        self.suspects += 1
        self._recent.append((error, sample))
        agreeing = [old for err, old in self._recent if err * error > 0]
        if len(agreeing) < 3:
            return
        self._window.clear()
        self._window.extend(agreeing)
        self._errors.clear()
        self._order.clear()
        self._recent.clear()
        ratios = sorted(old[3] / max(1e-9, self.cost.seconds(*old[:3])) for old in agreeing)
        self._rescale(ratios[len(ratios) // 2])

    def _rescale(self, ratio: float) -> None:
        """A change of regime scales model and anchors alike; the next passes refine it."""
        c = self.cost
        self.cost = Cost(c.c0 * ratio, c.c1 * ratio, c.c2 * ratio, c.c3 * ratio)
        self._anchors = [(v, b, p, t * ratio) for v, b, p, t in self._anchors]
        self.late_ratio, self.early_ratio = 1.25, 0.9

    def _note(self, error: float) -> None:
        self._errors.append(error)
        insort(self._order, error)
        if len(self._errors) > 256:
            del self._order[bisect_left(self._order, self._errors.popleft())]
        n = len(self._order)
        if n >= 16:
            self.late_ratio = max(self._floor, exp(self._order[min(n - 1, (n * 99) // 100)]))
            self.early_ratio = min(1.0, exp(self._order[(n * 5) // 100]))

    def _refit(self) -> None:
        self._since = 0
        samples = [*self._anchors, *self._window]
        if len(samples) >= 8:
            self.cost = fit(samples, self.cost)


def usable(measured_s: float) -> bool:
    return isfinite(measured_s) and 1e-9 <= measured_s <= LONGEST_S


def fit(samples: list[Sample], prior: Cost) -> Cost:
    """Non-negative least squares of relative error, drawn to `prior` by one part in a thousand.

    The pull decides what the data leave open: a window of equal shapes can't tell c0 from c1.
    """
    data = np.fromiter(chain.from_iterable(samples), np.float64, 4 * len(samples)).reshape(-1, 4)
    design = np.ones_like(data)
    design[:, 1:] = data[:, :3]
    design /= data[:, 3:]
    scale = np.maximum(design.max(axis=0), 1e-300)
    old = np.array([prior.c0, prior.c1, prior.c2, prior.c3]) * scale
    design /= scale
    three, loss3 = nnls(design[:, :3], old[:3])
    best, loss4 = nnls(design, old)
    keep = prior.c3 > 0.0
    if (len(samples) < 24 and not keep) or loss4 > loss3 * (0.9 if keep else 0.8):
        best = np.append(three, 0.0)
    c0, c1, c2, c3 = (best / scale).tolist()
    return Cost(c0, c1, c2, c3) if c0 + c1 + c2 > 0.0 else prior
