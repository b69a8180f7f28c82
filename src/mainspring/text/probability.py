"""Label logits -> probabilities by a bundle's calibration: softmax((logits + bias) / temperature) in float64.

Gateway and Scorer share this function, so that a score does not depend on where it was computed. The temperature is
fitted by negative log likelihood, one a kind of question (Guo et al. 2017, "On Calibration of Modern Neural Networks").
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from mainspring.errors import MainspringError

Floats = npt.NDArray[np.float64]


class LogitError(MainspringError):
    """Label logits that are no finite numbers: the pass went wrong, not the question."""

    code = "bad_logits"


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`bias` is added to the logits by label position; empty means none."""

    temperature: float = 1.0
    bias: tuple[float, ...] = ()


def probabilities(logits: npt.ArrayLike, calibration: Calibration) -> Floats:
    """Of logits [..., labels]: the same shape, float64, rows that sum to 1 within 1e-12. LogitError on NaN."""
    values = np.asarray(logits, dtype=np.float64)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise LogitError(f"label logits of shape {values.shape}: one a label is needed")
    if not np.isfinite(values).all():
        raise LogitError("label logits are not finite")
    if calibration.bias:
        if len(calibration.bias) < values.shape[-1]:
            raise LogitError(f"{values.shape[-1]} labels, calibration knows {len(calibration.bias)}")
        values = values + np.array(calibration.bias[: values.shape[-1]])
    scaled = values / calibration.temperature
    powers = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    result: Floats = powers / powers.sum(axis=-1, keepdims=True)
    return result


def ragged(rows: Sequence[Any], calibration: Calibration) -> list[Floats]:
    """The same for rows of different lengths."""
    return [probabilities(row, calibration) for row in rows]
