"""What is drafted, by whom, and how much.

A `Drafter` belongs to one stream and works on the host. A device's own drafter (a head, a block drafter) is known by
its name and drafts inside the round. How many tokens are drafted is what gave the most tokens a second so far.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

NONE, NGRAM = "none", "ngram"


class Drafter(Protocol):
    """One stream's."""

    def extend(self, tokens: Iterable[int]) -> None:
        """Prompt or emitted tokens, in order."""
        ...

    def propose(self, most: int) -> tuple[int, ...]:
        """At most `most` tokens that may come next."""
        ...


class NgramLookup:
    """What followed the latest earlier place where the last tokens stood (prompt lookup; Saxena 2023). Longer matches
    first; memory is an entry a token and length, freed with its stream."""

    lengths = (4, 3, 2)

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self._tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}  # n-gram -> position after its latest place but the end
        self.extend(tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        for token in tokens:
            known = self._tokens
            for n in self.lengths:
                if len(known) >= n:
                    self._after[tuple(known[-n:])] = len(known)
            known.append(int(token))

    def propose(self, most: int) -> tuple[int, ...]:
        known = self._tokens
        for n in self.lengths:
            at = self._after.get(tuple(known[-n:])) if len(known) >= n else None
            if at is not None:
                return tuple(known[at : at + most])
        return ()


class DraftLength:
    """How many tokens to draft: the number that maximises predicted tokens a second.

    A round is predicted to take a + b rows + c steps of the device's drafter, by least squares that forget; the draft
    at place j to be accepted, where all before it were, as often as it was. Every `EXPLORE` rounds one or two more are
    drafted, so that a drafter that got better is noticed. No clock: seconds are what the device measured.
    """

    EXPLORE = 32
    _FORGET, _LEARN = 0.97, 0.05
    _GUESS = (0.02, 0.001, 0.003)

    def __init__(self, most: int) -> None:
        self.most = most
        self._rounds = 0
        self._gram = np.zeros((3, 3))
        self._moment = np.zeros(3)
        self._accepts: dict[str, np.ndarray] = {}

    def choose(self, drafters: Sequence[str], *, fixed_rows: int | None = None) -> int:
        """For streams with these drafters, one name a stream. `fixed_rows`: what a round has, whatever is drafted."""
        drafting = [name for name in drafters if name != NONE]
        if not drafting or not self.most:
            return 0
        self._rounds += 1
        a, b, c = self._cost()
        gains = [np.cumprod(self._acceptance(name)) for name in drafting]
        gain = np.concatenate([[0.0], np.cumsum(np.sum(gains, axis=0))])
        n = np.arange(self.most + 1)
        rows = np.full(n.shape, fixed_rows) if fixed_rows is not None else len(drafters) + len(drafting) * n
        best = int(np.argmax((len(drafters) + gain) / (a + b * rows + c * n)))
        return min(best + 1 + best % 2, self.most) if self._rounds % self.EXPLORE == 0 else best

    def measured(self, seconds: float, rows: int, steps: int) -> None:
        if not (0.0 < seconds < 1e3 and rows > 0):
            return
        x = np.array([1.0, rows, steps]) / seconds  # relative errors
        self._gram = self._FORGET * self._gram + np.outer(x, x)
        self._moment = self._FORGET * self._moment + x

    def accepted(self, name: str, drafted: int, accepted: int) -> None:
        p = self._acceptance(name)
        for j in range(min(drafted, self.most)):
            if accepted >= j:
                p[j] += self._LEARN * ((accepted > j) - p[j])

    def _acceptance(self, name: str) -> np.ndarray:
        return self._accepts.setdefault(name, np.full(self.most, 0.7))

    def _cost(self) -> np.ndarray:
        """(a, b, c), each at least a little, drawn to the guess where nothing was measured."""
        guess = np.array(self._GUESS)
        pull = np.diag(1e-3 / guess**2)
        found = np.linalg.solve(self._gram + pull, self._moment + pull @ guess)
        return np.maximum(found, 1e-6)
