"""Marks over probabilities [rows, 3] (present, absent, not observable) and labels 0, 1, 2. Numpy alone.

AUC ranks p_present / (p_present + p_absent) over present and absent rows, a behavior at a time, and is averaged over
behaviors with at least `LEAST` rows of each; ECE is on p_present over all rows, bins of equal mass.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
LEAST, BINS = 20, 15


def auc(scores: Array, positive: npt.NDArray[np.bool_]) -> float:
    """Chance that a positive outranks a negative, ties half; NaN where one side is missing."""
    many, few = int(positive.sum()), int((~positive).sum())
    if not many or not few:
        return float("nan")
    order = np.argsort(scores, kind="stable")
    values, start = scores[order], 0
    ranks = np.empty(len(scores))
    edges = np.flatnonzero(np.diff(values)) + 1
    for end in (*edges, len(values)):
        ranks[order[start:end]] = (start + end + 1) / 2
        start = end
    return float((ranks[positive].sum() - many * (many + 1) / 2) / (many * few))


def leaning(p: Array) -> Array:
    """p_present / (p_present + p_absent)."""
    return p[:, 0] / np.maximum(p[:, 0] + p[:, 1], 1e-12)


def macro_auc(p: Array, labels: Ints, behaviors: Ints, *, least: int = LEAST) -> tuple[float, int]:
    """(mean AUC, how many behaviors it is over)."""
    scores, told = leaning(p), labels < 2
    found = []
    for behavior in np.unique(behaviors):
        rows = told & (behaviors == behavior)
        positive = labels[rows] == 0
        if min(positive.sum(), (~positive).sum()) >= least:
            found.append(auc(scores[rows], positive))
    return (float(np.mean(found)) if found else float("nan")), len(found)


def bins(p: Array, truth: Array, count: int = BINS) -> tuple[Array, Array, Array]:
    """Mean probability, share of truths and rows of bins of equal mass."""
    parts = np.array_split(np.argsort(p, kind="stable"), min(count, max(1, len(p))))
    return (
        np.array([p[part].mean() for part in parts]),
        np.array([truth[part].mean() for part in parts]),
        np.array([float(len(part)) for part in parts]),
    )


def ece(p: Array, truth: Array) -> float:
    if not len(p):
        return float("nan")
    said, came, size = bins(p, truth)
    return float((np.abs(said - came) * size).sum() / size.sum())


def f1(p: Array, labels: Ints) -> float:
    """Of "present", by the likeliest label."""
    said, truth = p.argmax(1) == 0, labels == 0
    both = (said & truth).sum()
    return float(2 * both / max(1, said.sum() + truth.sum()))


def recall_precision(p: Array, labels: Ints, label: int) -> tuple[float, float]:
    said, truth = p.argmax(1) == label, labels == label
    both = float((said & truth).sum())
    return both / max(1, truth.sum()), both / max(1, said.sum())


@dataclass(frozen=True)
class Marks:
    rows: int
    f1: float
    auc: float
    behaviors: int  # that the AUC is over
    ece: float
    ece_per_behavior: float  # mean over behaviors with at least 2 * LEAST rows
    brier: float
    untold_recall: float
    untold_precision: float


def marks(p: Array, labels: Ints, behaviors: Ints) -> Marks:
    truth = (labels == 0).astype(np.float64)
    value, count = macro_auc(p, labels, behaviors)
    many = [b for b in np.unique(behaviors) if (behaviors == b).sum() >= 2 * LEAST]
    each = [ece(p[behaviors == b, 0], truth[behaviors == b]) for b in many]
    recall, precision = recall_precision(p, labels, 2)
    return Marks(
        rows=len(p),
        f1=f1(p, labels),
        auc=value,
        behaviors=count,
        ece=ece(p[:, 0], truth),
        ece_per_behavior=float(np.mean(each)) if each else float("nan"),
        brier=float(((p - np.eye(3)[labels]) ** 2).sum(1).mean()),
        untold_recall=recall,
        untold_precision=precision,
    )


def bootstrap(
    measure: Callable[[Ints], float], tasks: Sequence[str] | npt.NDArray[np.str_], *, rounds: int = 200, seed: int = 0
) -> tuple[float, float]:
    """95 % interval of `measure(rows)` under resampling of whole tasks."""
    rng = np.random.default_rng(seed)
    _, numbers = np.unique(np.asarray(tasks), return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    values = []
    for _ in range(rounds):
        drawn = rng.integers(0, len(members), len(members))
        values.append(measure(np.concatenate([members[i] for i in drawn])))
    low, high = np.nanpercentile(values, [2.5, 97.5]) if not np.isnan(values).all() else (np.nan, np.nan)
    return float(low), float(high)
