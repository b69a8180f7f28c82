"""What a round costs, learnt from every one: `d0 + d1 * slots + d2 * context`, and the tokens it yields a slot.

Non-negative least squares of relative error over cells: rounds of as many slots whose context has as many bits are one,
by their medians, so thousands of short rounds say no more about long ones than a few. A cell that the last rounds do
not have is remembered, at the pace of those seen in both.

A machine changes its pace by itself while one stream's context grows, and that looks like a price of context. Carried
on from a few hundred tokens to some thousands it makes a node refuse what it could do, for ever, since who is refused
teaches nothing. So every cell may be off by `SPREAD`, however many rounds it has, and `d2` counts for as much of it as
stands out from that: what is not known to be slow is tried.

One slow or quick round in sixteen moves nothing: what is beyond thrice the prediction, or under a third, is left out
unless a quarter of the window is.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mainspring.core.cost import RoundCost, usable
from mainspring.core.nnls import nnls

WINDOW = 256
REFIT_EVERY = 16
FAR = 3.0
SPREAD, STALE = 0.2, 0.3
"""Relative error of a cell of the window, of a remembered one."""
UNCLEAR, CLEAR = 1.5, 2.5
"""In deviations: a price of context below the first counts for nothing, above the second in full."""
SURE = 4
"""Rounds that make a cell worth to be remembered."""
CELLS = 64
TOLD = 0.05
"""A router hears of terms and tokens that moved by more than this share."""
TOKENS_DECAY = 0.02
PULL = 1e-3
Cell = tuple[int, int]


@dataclass(frozen=True)
class Seen:
    """Medians of a cell's rounds."""

    slots: int
    context: float
    seconds: float
    rounds: int

    @classmethod
    def of(cls, rounds: list[tuple[int, int, float]]) -> "Seen":
        _, context, seconds = np.median(np.asarray(rounds, np.float64), axis=0)
        return cls(rounds[0][0], float(context), float(seconds), len(rounds))


@dataclass
class RoundFit:
    """`cost` to plan with; `told` what was offered or reported last. `longest`: tokens that one stream may have."""

    cost: RoundCost
    longest: int = 0
    told: RoundCost = field(init=False)
    rounds: int = 0

    def __post_init__(self) -> None:
        self.cost.check()
        self.told = self.cost
        self._window: deque[tuple[int, int, float]] = deque(maxlen=WINDOW)
        self._remembered: OrderedDict[Cell, Seen] = OrderedDict()
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

    def settled(self, longest: int) -> "RoundFit":
        """What was learnt, with an empty window and no tokens a round: measurements of a start, which are no guide to
        what real text will yield."""
        self._refit()
        new = RoundFit(RoundCost(self.cost.d0, self.cost.d1, self.cost.d2), longest)
        new._remembered.update(self._remembered)
        return new

    @property
    def moved(self) -> bool:
        """By enough to tell: for rounds such as the last, or for one of the longest stream."""
        old, new = self.told, self.cost
        slots, context, _ = self._window[-1] if self._window else (1, 0, 0.0)
        shapes = ((slots, context), (1, max(self.longest, context)))
        befores = [old.seconds(*shape) for shape in shapes]
        changes = [abs(new.seconds(*shape) - before) for shape, before in zip(shapes, befores, strict=True)]
        return (
            any(change > TOLD * before for change, before in zip(changes, befores, strict=True))
            or abs(new.tokens - old.tokens) > TOLD * old.tokens
        )

    def tell(self) -> RoundCost:
        self.told = self.cost
        return self.cost

    # ------------------------------------------------------ within

    def _refit(self) -> None:
        if not self._window:
            return
        cells = self._cells()
        self._remember(cells)
        old = [seen for cell, seen in self._remembered.items() if cell not in cells]
        rows = [*cells.values(), *old]
        errors = [SPREAD * (1.0 + 1.0 / seen.rounds) ** 0.5 for seen in cells.values()] + [STALE] * len(old)
        terms = _solve(rows, np.asarray(errors), np.array([self.cost.d0, self.cost.d1, self.cost.d2]))
        if terms[0] + terms[1] > 0.0:
            self.cost = RoundCost(terms[0], terms[1], terms[2], self._tokens)

    def _cells(self) -> dict[Cell, Seen]:
        window = list(self._window)
        near = [each for each in window if 1 / FAR <= each[2] / max(self.cost.seconds(each[0], each[1]), 1e-12) <= FAR]
        if 4 * len(near) >= 3 * len(window):
            window = near
        rounds: dict[Cell, list[tuple[int, int, float]]] = {}
        for each in window:
            rounds.setdefault((each[0], each[1].bit_length()), []).append(each)
        return {cell: Seen.of(those) for cell, those in rounds.items()}

    def _remember(self, cells: Mapping[Cell, Seen]) -> None:
        """Those of the window in place of what was known of them; the pace they changed by is the others' too."""
        ratios = [seen.seconds / self._remembered[cell].seconds for cell, seen in cells.items()
                  if cell in self._remembered]  # fmt: skip
        pace = float(np.median(ratios)) if ratios else 1.0
        for cell, seen in self._remembered.items():
            if cell not in cells:
                self._remembered[cell] = Seen(seen.slots, seen.context, seen.seconds * pace, seen.rounds)
        for cell, seen in cells.items():
            if seen.rounds >= SURE or cell in self._remembered:
                self._remembered[cell] = seen
                self._remembered.move_to_end(cell)
        while len(self._remembered) > CELLS:
            self._remembered.popitem(last=False)


def _solve(rows: list[Seen], errors: NDArray[np.float64], known: NDArray[np.float64]) -> tuple[float, float, float]:
    """The three terms; `known` decides what the rows leave open, but for the price of context: that is what rows say,
    as far as it stands out from their errors."""
    data = np.array([(1.0, seen.slots, seen.context) for seen in rows])
    design = data / np.array([[seen.seconds] for seen in rows])
    scale = np.maximum(design.max(axis=0), 1e-300)
    design, known = design / scale, known * scale
    # `nnls` fits to ones, so a row that counts for more is there as its own multiple: weights are whole numbers
    counts = np.maximum(1, np.rint(4.0 * (errors.min() / errors) ** 2)).astype(int)
    many = np.repeat(design, counts, axis=0)
    terms, _ = nnls(many, known, pull=PULL)
    if terms[2] > 0.0:
        weighted = design / errors[:, None]
        gram = weighted.T @ weighted
        variance = np.linalg.inv(gram + 1e-9 * np.diag(np.diag(gram)) + 1e-12 * np.eye(3))[2, 2]
        clear = float(terms[2]) / float(variance) ** 0.5
        terms[2] *= min(1.0, max(0.0, (clear - UNCLEAR) / (CLEAR - UNCLEAR)))
        known[2] = terms[2]
        terms, _ = nnls(many, known, pull=np.array([PULL, PULL, 1e6]))
    d0, d1, d2 = (float(term) for term in terms / scale)
    return d0, d1, d2
