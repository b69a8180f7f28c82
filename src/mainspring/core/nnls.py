"""Least squares of ones with terms that can't be negative, of up to four terms: exact, by all supports.

What is left after one product of the design with itself is sixteen numbers. Python's floats solve for them in a few
microseconds; numpy took a millisecond for all supports, on the router's loop, every eighth pass. Source: Lawson &
Hanson 1974 for the problem.
"""

from collections.abc import Sequence
from itertools import combinations
from operator import mul

import numpy as np
from numpy.typing import NDArray


def nnls(
    design: NDArray[np.float64], prior: NDArray[np.float64], pull: float | NDArray[np.float64] = 1e-3
) -> tuple[NDArray[np.float64], float]:
    """Terms [t] and the sum of squares they leave, of `design` [n, t] against ones; `pull` towards the prior [t], of
    all terms or of each.

    Exact for up to four terms: the free solution if it is non-negative, else the best support. Zeros where the design
    holds what is no number."""
    gram = design.T @ design
    ridge = pull * gram.diagonal() + 1e-12
    moment = design.sum(axis=0) + ridge * prior
    rows = gram.tolist()
    for index, more in enumerate(ridge.tolist()):
        rows[index][index] += more
    best = np.array(_best(rows, moment.tolist()))
    residual = design @ best - 1.0
    return best, float(residual @ residual)


def _best(gram: list[list[float]], moment: list[float]) -> list[float]:
    """The support whose solution is non-negative, and which no term left out would improve, is the best: the problem is
    convex. Where rounding leaves none such, the best of what is non-negative."""
    terms = len(moment)
    best, best_gain = [0.0] * terms, float("-inf")
    for size in range(terms, 0, -1):
        for support in combinations(range(terms), size):
            part = _solved(gram, moment, support)
            if part is None or not all(value >= 0.0 for value in part):  # nor anything of what is no number
                continue
            whole = [0.0] * terms
            for index, value in zip(support, part, strict=True):
                whole[index] = value
            if all(moment[i] <= _dot(gram[i], whole) for i in range(terms) if i not in support):
                return whole
            if (gain := _dot(moment, whole)) > best_gain:
                best, best_gain = whole, gain
    return best


def _dot(left: list[float], right: list[float]) -> float:
    total: float = sum(map(mul, left, right))
    return total


def _solved(gram: list[list[float]], moment: list[float], support: Sequence[int]) -> list[float] | None:
    """By elimination, without pivoting as the matrix is positive definite; None where rounding left it not so."""
    rows = [[*(gram[i][j] for j in support), moment[i]] for i in support]
    size = len(rows)
    for k, top in enumerate(rows):
        if top[k] <= 0.0:
            return None
        for row in rows[k + 1 :]:
            factor = row[k] / top[k]
            for j in range(k + 1, size + 1):
                row[j] -= factor * top[j]
    found = [0.0] * size
    for k in range(size - 1, -1, -1):
        top = rows[k]
        found[k] = (top[size] - sum(top[j] * found[j] for j in range(k + 1, size))) / top[k]
    return found
