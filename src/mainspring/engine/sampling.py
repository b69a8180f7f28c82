"""Choosing a token from logits: greedy, or by chance under temperature, top-k and top-p.

The order is temperature, top-k (by logit, ties by the lower id), then top-p over what top-k left, renormalised; at
least one token stays. Greedy takes the lowest id among equals. All chance comes from the caller's generator.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mainspring.errors import InputError

MOST_TEMPERATURE = 100.0


@dataclass(frozen=True)
class Sampling:
    """`temperature` 0 is greedy; `top_k` 0 and `top_p` 1 leave all tokens in; the same seed gives the same text."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= MOST_TEMPERATURE:
            raise InputError(
                f"temperature is from 0 to {MOST_TEMPERATURE:g}, not {self.temperature}", param="temperature"
            )
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p is above 0 and at most 1, not {self.top_p}", param="top_p")
        if self.top_k < 0:
            raise InputError(f"top_k is 0 for all tokens, or how many, not {self.top_k}", param="top_k")
        if self.seed < 0:
            raise InputError(f"seed is 0 or more, not {self.seed}", param="seed")


def choose(logits: npt.NDArray[np.floating], sampling: Sampling, chance: np.random.Generator) -> int:
    """A token id by `logits` [vocab]."""
    if sampling.temperature == 0:
        return int(logits.argmax())
    ids, p = distribution(logits, sampling)
    # One number a token, however many stay: the stream of chance does not depend on the filters.
    return int(ids[min(int(np.searchsorted(np.cumsum(p), chance.random(), side="right")), len(ids) - 1)])


def distribution(
    logits: npt.NDArray[np.floating], sampling: Sampling
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """(ids, probabilities) of the tokens that stay, the likeliest first. Temperature above 0."""
    wide = logits.astype(np.float64) / sampling.temperature
    ids = np.argsort(-wide, kind="stable")[: sampling.top_k or None]
    p = np.exp(wide[ids] - wide[ids[0]])
    p /= p.sum()
    if sampling.top_p < 1:
        # A token stays while what comes before it has less than top_p.
        kept = int((np.cumsum(p) - p < sampling.top_p).sum())
        ids, p = ids[:kept], p[:kept] / p[:kept].sum()
    return ids, p
