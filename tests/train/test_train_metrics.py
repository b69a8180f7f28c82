"""Marks against their definitions, counted by brute force."""

import numpy as np
import pytest

from mainspring.text.probability import probabilities
from mainspring.train import metrics
from mainspring.train.calibrate import fit


def test_auc_counts_pairs_with_ties_half() -> None:
    rng = np.random.default_rng(0)
    scores, positive = rng.integers(0, 6, 60).astype(float), rng.random(60) < 0.4
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[positive] for b in scores[~positive]]
    assert metrics.auc(scores, positive) == pytest.approx(np.mean(pairs))


def test_ece_of_honest_probabilities_is_small_and_of_boasts_is_not() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    truth = (rng.random(20_000) < p).astype(float)
    assert metrics.ece(p, truth) < 0.02
    assert metrics.ece(np.where(p > 0.5, 0.99, 0.01), truth) > 0.2


def test_f1_and_untold_by_hand() -> None:
    p = np.array([[0.9, 0.1, 0], [0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8], [0.1, 0.2, 0.7]])
    labels = np.array([0, 1, 0, 2, 1])
    assert metrics.f1(p, labels) == pytest.approx(0.5)
    assert metrics.recall_precision(p, labels, 2) == (1.0, 0.5)


def test_bootstrap_resamples_tasks_not_rows() -> None:
    values = np.repeat([0.0, 1.0], 50)
    low, high = metrics.bootstrap(lambda rows: float(values[rows].mean()), np.repeat(["a", "b"], 50))
    assert (low, high) == (0.0, 1.0)


def test_calibration_recovers_a_temperature() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1.5, (20_000, 3))
    p = probabilities(logits, fit(logits, np.zeros(20_000, np.int64)).__class__())
    labels = np.array([rng.choice(3, p=row) for row in p])
    found = fit(3 * logits, labels)
    assert found.temperature == pytest.approx(3, rel=0.05)
    assert max(map(abs, found.bias)) < 0.2


def test_rows_told_apart_without_a_fault_leave_a_usable_temperature() -> None:
    labels = np.arange(60) % 3
    found = fit(4.0 * np.eye(3)[labels], labels)
    assert 0.05 <= found.temperature <= 1
    assert np.isfinite(probabilities(4.0 * np.eye(3), found)).all()
