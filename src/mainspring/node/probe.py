"""Cost constants by measurement: a schedule of shapes, and what is known so far.

Views of 500 to 18,000 tokens, 1 to 256 branches, several requests a pass, as far as the model and the memory go. Within
a budget the quickest shapes give a `provisional` answer; the others follow in idle time, an expensive one only after
idleness several times as long and none above `longest_s`, since a pass can't be interrupted: the router learns those
from real passes. Pure: whoever runs the shapes tells how long they took. Fitted by `core.cost.fit`.
"""

from dataclasses import dataclass, field
from itertools import product

import numpy as np

from mainspring.core.cost import Cost, Sample, fit, usable
from mainspring.core.nouns import pairs
from mainspring.engine import Branch, Segment

BUDGET_S = 5.0
BRANCH_TOKENS = 40
"""A behavior in the scoring template has about so many."""
REPEATS = 3
IDLE_FACTOR = 4.0
"""Idle time that a shape needs before it, in units of its own predicted time."""
IDLE_LEAST_S = 0.5
LONGEST_S = 0.5
"""A request that comes while a measurement runs waits for it, and the router can't know: half of the tightest usual
target, no more."""
OTHERWISE = 1.6
"""A cached answer off by this ratio is not believed."""


@dataclass(frozen=True)
class Shape:
    """`requests` views of `view` tokens, each with `branches` branches."""

    view: int
    branches: int
    requests: int = 1

    @property
    def sample(self) -> tuple[int, int, int]:
        """View tokens, branch rows, attention pairs."""
        rows = self.branches * BRANCH_TOKENS
        return self.view * self.requests, rows * self.requests, pairs(0, self.view, rows) * self.requests

    @property
    def rows(self) -> int:
        return sum(self.sample[:2])

    def segments(self, vocab_size: int, seed: int = 0) -> list[Segment]:
        """Random ids: the time of a pass does not depend on them."""
        rng = np.random.default_rng(seed)
        label = np.array([1, 2, 3], np.int64) % vocab_size

        def draw(count: int) -> np.ndarray:
            return rng.integers(0, vocab_size, count, dtype=np.int64)

        return [
            Segment(draw(self.view), tuple(Branch(draw(BRANCH_TOKENS), label) for _ in range(self.branches)))
            for _ in range(self.requests)
        ]


CANARY = Shape(64, 1)
"""Also what a node runs when it has been idle for long, to know that it still can."""
QUICK = (
    Shape(500, 1), Shape(500, 16), Shape(2_000, 1), Shape(500, 4, 4), Shape(500, 64), Shape(2_000, 64), Shape(6_000, 1),
    Shape(500, 256), Shape(500, 16, 16), Shape(18_000, 1),
)  # fmt: skip
"""In this order, as far as the budget goes: short ones first, each telling another term of the cost apart."""
WHOLE = tuple(Shape(view, branches) for view, branches in product((500, 2_000, 6_000, 18_000), (1, 16, 64, 256)))
SMALL = (Shape(64, 1), Shape(64, 8), Shape(256, 1), Shape(128, 4, 2))
"""For a device so slow, or a model so short, that the others don't go."""


@dataclass
class Probe:
    """`next_first` until it says None, then `cost` is there; `next_idle` whenever there is nothing else to do.

    `context_tokens` and `pass_rows` bound the shapes, as the backend's limits do; `view_tokens` bounds their views.
    """

    context_tokens: int
    pass_rows: int
    view_tokens: int
    budget_s: float = BUDGET_S
    longest_s: float = LONGEST_S
    repeats: int = REPEATS
    cost: Cost | None = None
    provisional: bool = True
    spent_s: float = 0.0
    _times: dict[Shape, list[float]] = field(default_factory=dict)
    _warm: bool = False
    _failed: set[Shape] = field(default_factory=set)
    _adopted: tuple[Sample, ...] = ()
    _owed: list[Shape] | None = None

    # ------------------------------------------------------ the first answer

    def next_first(self, elapsed_s: float) -> Shape | None:
        """What to run now, `elapsed_s` after the start; None: there is an answer, or will be none."""
        if not self._warm:
            return CANARY
        for shape in (*SMALL, *QUICK):
            if shape in self._times or shape in self._failed or not self._fits(shape):
                continue
            if elapsed_s + self.expect_s(shape) > self.budget_s and len(self._times) >= len(SMALL):
                continue
            if shape in SMALL or elapsed_s < self.budget_s:
                return shape
        return None

    # ------------------------------------------------------ in idle time

    def next_idle(self, idle_s: float) -> Shape | None:
        """The cheapest shape still owed a measurement that so much idleness allows."""
        owed = self.owed()
        if not owed:
            return None
        return owed[0] if idle_s >= self.wait_s(owed[0]) else None

    def due_s(self) -> float:
        """Idle seconds after which `next_idle` has something, infinite when all is known."""
        owed = self.owed()
        return self.wait_s(owed[0]) if owed else float("inf")

    def wait_s(self, shape: Shape) -> float:
        return IDLE_LEAST_S + IDLE_FACTOR * self.expect_s(shape)

    def owed(self) -> list[Shape]:
        """The cheapest first. Asked several times a pass, and changed by measurements alone: kept between two."""
        if self.cost is None or not self.provisional:
            return []
        if self._owed is None:
            self._owed = sorted(self._still_owed(), key=self.expect_s)
        return self._owed

    def _still_owed(self) -> list[Shape]:
        return [
            shape
            for shape in dict.fromkeys((*QUICK, *WHOLE))
            if self._fits(shape)
            and shape not in self._failed
            and len(self._times.get(shape, ())) < self.repeats
            and self.expect_s(shape) <= self.longest_s
        ]

    # ------------------------------------------------------ what came out

    def note(self, shape: Shape, measured_s: float) -> None:
        """`shape` took so long. The very first run only warms up: memory is faulted in, kernels are built."""
        self._owed = None
        self.spent_s += measured_s if usable(measured_s) else 0.0
        if not self._warm:
            self._warm = True
            return
        if not usable(measured_s):
            self._failed.add(shape)
            return
        self._times.setdefault(shape, []).append(measured_s)
        if len(self._times) >= 2:
            self._fit()

    def failed(self, shape: Shape) -> None:
        """It could not be run (memory): not tried again."""
        self._warm, self._owed = True, None
        self._failed.add(shape)

    @property
    def anchors(self) -> tuple[Sample, ...]:
        """The quickest measurement of each shape: what disturbs a device only ever adds."""
        return self._adopted or tuple((*shape.sample, min(times)) for shape, times in self._times.items())

    def expect_s(self, shape: Shape) -> float:
        """By what is known; before two shapes, by rows of the slowest so far."""
        if shape in self._times:
            return min(self._times[shape])
        if self.cost is not None:
            return self.cost.seconds(*shape.sample)
        worst = max((min(times) / other.rows for other, times in self._times.items()), default=0.0)
        return worst * shape.rows

    def adopt(self, cost: Cost, anchors: tuple[Sample, ...]) -> None:
        """An earlier life's answer: nothing is owed any more."""
        self._adopted, self._owed = anchors, None
        self.cost, self.provisional, self._warm = cost, False, True

    def _fit(self) -> None:
        samples = [(*shape.sample, time) for shape, times in self._times.items() for time in sorted(times)[:2]]
        quickest = min(sample[3] for sample in samples)
        tokens = max(sample[0] + sample[1] for sample in samples)
        slope = max(sample[3] for sample in samples) / max(1, tokens)
        self.cost, self._owed = fit(samples, self.cost or Cost(quickest / 2.0, slope, slope)), None
        if self.provisional and not self.owed():
            self.provisional = False

    def _fits(self, shape: Shape) -> bool:
        return (
            shape.view <= self.view_tokens
            and shape.view + BRANCH_TOKENS <= self.context_tokens
            and shape.rows <= self.pass_rows
        )


def believable(cost: Cost, measured: list[tuple[Shape, float]]) -> bool:
    """Whether what was measured now agrees with constants of an earlier life: the machine may have changed."""
    return all(
        1.0 / OTHERWISE <= seconds / max(1e-9, cost.seconds(*shape.sample)) <= OTHERWISE for shape, seconds in measured
    )
