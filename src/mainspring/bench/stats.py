"""Ratios of sums, and how far to trust them.

A rate is all units over all seconds, never a mean of per-sample rates: those let the short samples dominate. A ratio
between arms is the ratio of two such rates. Intervals are 95 % percentile bootstraps over rounds; all arms use the same
resampled rounds, so what disturbed a whole round cancels in a ratio. Below about eight rounds a percentile bootstrap is
too narrow, and with one round there is none (None). They cover noise within one run; two
quiet runs of one comparison may differ by more.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

RESAMPLES = 10_000
PERCENTILES = (2.5, 97.5)


class Sample(msgspec.Struct, frozen=True):
    """One timed call of an arm, raw. `position` counts samples from the start of the recorded part."""

    arm: str
    round: int
    position: int
    units: float
    elapsed_ns: int
    others_cores: float | None = None  # cores other processes used meanwhile

    @property
    def rate(self) -> float:
        """Units per second of this sample alone."""
        return self.units / self.elapsed_ns * 1e9


class Interval(msgspec.Struct, frozen=True):
    low: float
    high: float


class ArmStats(msgspec.Struct, frozen=True):
    """`rate` is units per second, a ratio of sums; minimum, median and maximum are of single samples' rates."""

    arm: str
    samples: int
    units: float
    seconds: float
    rate: float
    interval: Interval | None
    minimum: float
    median: float
    maximum: float
    others_cores: float | None  # weighted by the samples' durations


class RatioStats(msgspec.Struct, frozen=True):
    """Rate of `arm` over rate of `baseline`: above 1 is faster."""

    arm: str
    baseline: str
    ratio: float
    interval: Interval | None


def summarize(samples: Sequence[Sample], *, seed: int) -> tuple[tuple[ArmStats, ...], tuple[RatioStats, ...]]:
    """Statistics per arm in order of first appearance, and of every other arm against the first.

    Every arm must have samples in every round.
    """
    arms = list(dict.fromkeys(sample.arm for sample in samples))
    units, seconds = _by_round(samples, arms)
    rates = units.sum(axis=0) / seconds.sum(axis=0)
    resampled = _resampled_rates(units, seconds, seed)
    stats = tuple(
        _arm_stats([sample for sample in samples if sample.arm == arm], float(rates[i]), _interval(resampled, i))
        for i, arm in enumerate(arms)
    )
    ratios = tuple(
        RatioStats(arm, arms[0], float(rates[i] / rates[0]), _interval(resampled, i, 0))
        for i, arm in enumerate(arms)
        if i > 0
    )
    return stats, ratios


def others_cores(samples: Sequence[Sample]) -> float | None:
    """Mean cores used by others while these samples ran, weighted by duration; None where not measured."""
    known = [(sample.others_cores, sample.elapsed_ns) for sample in samples if sample.others_cores is not None]
    if not known:
        return None
    return max(0.0, sum(cores * ns for cores, ns in known) / sum(ns for _, ns in known))


def _by_round(samples: Sequence[Sample], arms: list[str]) -> tuple[Floats, Floats]:
    """Units and seconds, each [rounds, arms]."""
    rounds = sorted({sample.round for sample in samples})
    units = np.zeros((len(rounds), len(arms)))
    seconds = np.zeros_like(units)
    for sample in samples:
        cell = rounds.index(sample.round), arms.index(sample.arm)
        units[cell] += sample.units
        seconds[cell] += sample.elapsed_ns / 1e9
    if not seconds.all():
        raise ValueError("an arm has no time in some round")
    return units, seconds


def _resampled_rates(units: Floats, seconds: Floats, seed: int) -> Floats | None:
    """Rates [resamples, arms]: drawing rounds with replacement = multinomial weights on the rounds' sums."""
    rounds = len(units)
    if rounds < 2:
        return None
    weights = np.random.default_rng(seed).multinomial(rounds, np.full(rounds, 1 / rounds), size=RESAMPLES)
    return (weights @ units) / (weights @ seconds)


def _interval(resampled: Floats | None, arm: int, baseline: int | None = None) -> Interval | None:
    if resampled is None:
        return None
    values = resampled[:, arm] if baseline is None else resampled[:, arm] / resampled[:, baseline]
    low, high = np.percentile(values, PERCENTILES)
    return Interval(float(low), float(high))


def _arm_stats(samples: Sequence[Sample], rate: float, interval: Interval | None) -> ArmStats:
    rates = np.array([sample.rate for sample in samples])
    return ArmStats(
        arm=samples[0].arm,
        samples=len(samples),
        units=sum(sample.units for sample in samples),
        seconds=sum(sample.elapsed_ns for sample in samples) / 1e9,
        rate=rate,
        interval=interval,
        minimum=float(rates.min()),
        median=float(np.median(rates)),
        maximum=float(rates.max()),
        others_cores=others_cores(samples),
    )
