"""Calibrated softmax: exact sums, any batch shape, no silent NaN."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mainspring.text.probability import Calibration, LogitError, probabilities, ragged

shapes = st.tuples(st.integers(1, 20), st.integers(1, 255))


@given(
    arrays.arrays(np.float32, shapes, elements=st.floats(-1e4, 1e4, width=32)),
    st.floats(0.05, 20),
)
def test_rows_sum_to_one_and_keep_their_order(logits: Any, temperature: float) -> None:
    found = probabilities(logits, Calibration(temperature))
    assert found.dtype == np.float64
    assert np.abs(found.sum(axis=-1) - 1).max() < 1e-12
    assert (found >= 0).all()
    best = np.take_along_axis(found, logits.argmax(axis=-1)[:, None], axis=-1)
    assert (best == found.max(axis=-1, keepdims=True)).all()


def test_temperature_and_bias() -> None:
    found = probabilities([1.0, 2.0, 3.0], Calibration(2.0, (0.5, 0.0, -1.0)))
    expected = np.exp([0.75, 1.0, 1.0])
    assert np.allclose(found, expected / expected.sum(), atol=1e-15)
    assert probabilities([0.0, 0.0], Calibration(1.0, (1.0, 1.0, 5.0))).tolist() == [0.5, 0.5]


def test_alone_is_as_in_a_batch() -> None:
    logits = np.random.default_rng(1).normal(size=(50, 3)) * 5
    batch = probabilities(logits, Calibration(1.3))
    for row, alone in zip(batch, ragged(list(logits), Calibration(1.3)), strict=True):
        assert row.tolist() == alone.tolist()
    assert [len(row) for row in ragged([[1, 2], [1, 2, 3]], Calibration())] == [2, 3]


@pytest.mark.parametrize("logits", [[1.0, float("nan")], [float("inf"), 0.0], [[0.0, -float("inf")]], [], 3.0])
def test_logits_that_are_none(logits: Any) -> None:
    with pytest.raises(LogitError):
        probabilities(logits, Calibration())


def test_more_labels_than_the_calibration_knows() -> None:
    with pytest.raises(LogitError, match="3 labels"):
        probabilities([1.0, 2.0, 3.0], Calibration(1.0, (0.0, 0.0)))
