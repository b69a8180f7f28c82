"""The cost model: recovers, resists, adapts, and says when it does not fit."""

from math import exp, inf, nan
from random import Random

import numpy as np
import pytest
from scipy.optimize import nnls as scipy_nnls

from mainspring.core.cost import Cost, CostFit, RoundCost, Sample, nnls
from mainspring.core.nouns import pairs
from mainspring.core.refusals import BadCostError

TRUE = Cost(0.004, 1e-5, 2e-5)


def samples(count: int, true: Cost = TRUE, noise: float = 0.0, seed: int = 1) -> list[Sample]:
    rng = Random(seed)
    out = []
    for _ in range(count):
        view, rows = rng.randint(200, 18_000), rng.randint(8, 8_000)
        attention = pairs(0, view, rows)
        out.append((view, rows, attention, true.seconds(view, rows, attention) * exp(rng.gauss(0.0, noise))))
    return out


def test_recovers_the_truth_from_a_wrong_start() -> None:
    fit = CostFit(Cost(0.006, 1.4e-5, 1.5e-5))
    for sample in samples(200, noise=0.02):
        fit.observe(*sample)
    for view, rows in ((500, 64), (8_000, 512), (18_000, 6_400)):
        assert fit.cost.seconds(view, rows) == pytest.approx(TRUE.seconds(view, rows), rel=0.03)
    assert fit.cost.c3 == 0.0
    assert fit.verdict().fits


def test_join_measurements_alone_fit() -> None:
    fit = CostFit(Cost(0.1, 1e-3, 1e-3), anchors=tuple(samples(12)))
    assert fit.cost.seconds(8_000, 512) == pytest.approx(TRUE.seconds(8_000, 512), rel=0.02)


@pytest.mark.parametrize("factor", [0.01, 30.0, 1000.0])
def test_one_outlier_moves_nothing(factor: float) -> None:
    fit = CostFit(TRUE)
    for sample in samples(60, noise=0.02):
        fit.observe(*sample)
    before = (fit.cost, fit.late_ratio, fit.early_ratio)
    view, rows, attention, seconds = samples(1)[0]
    fit.observe(view, rows, attention, seconds * factor)
    assert (fit.cost, fit.late_ratio, fit.early_ratio) == before
    assert fit.suspects == 1


def test_a_change_of_regime_is_believed_after_three() -> None:
    fit = CostFit(TRUE, anchors=tuple(samples(12)))
    for sample in samples(60):
        fit.observe(*sample)
    for view, rows, attention, seconds in samples(3, seed=2):
        fit.observe(view, rows, attention, 5.0 * seconds)
    assert fit.cost.seconds(4_000, 256) == pytest.approx(5.0 * TRUE.seconds(4_000, 256), rel=0.05)


def test_attention_pairs_enter_only_where_residuals_show_them() -> None:
    quadratic = Cost(0.004, 1e-5, 2e-5, 1e-9)
    fit = CostFit(TRUE)
    for sample in samples(200, quadratic, noise=0.02):
        fit.observe(*sample)
    assert fit.cost.c3 == pytest.approx(1e-9, rel=0.25)
    assert fit.cost.seconds(18_000, 64, pairs(0, 18_000, 64)) == pytest.approx(
        quadratic.seconds(18_000, 64, pairs(0, 18_000, 64)), rel=0.05
    )


def test_p99_follows_the_noise() -> None:
    calm, wild = CostFit(TRUE), CostFit(TRUE)
    for sample in samples(300, noise=0.01):
        calm.observe(*sample)
    for sample in samples(300, noise=0.2):
        wild.observe(*sample)
    assert 1.0 <= calm.late_ratio < 1.1
    assert 1.35 < wild.late_ratio < 2.0
    assert wild.early_ratio < 0.85


def test_says_when_it_does_not_fit() -> None:
    rng = Random(3)
    fit = CostFit(TRUE)
    for view, rows, attention, seconds in samples(120):
        fit.observe(view, rows, attention, seconds * rng.choice((0.4, 1.0, 2.5)))
    assert not fit.verdict().fits


@pytest.mark.parametrize("measured", [0.0, -1.0, inf, nan, -inf, 1e9])
def test_impossible_times_are_counted_and_ignored(measured: float) -> None:
    fit = CostFit(TRUE)
    fit.observe(1000, 100, 0, measured)
    assert fit.rejected == 1
    assert fit.cost == TRUE


@pytest.mark.parametrize("cost", [Cost(-1e-3, 1e-5, 1e-5), Cost(nan, 0, 0), Cost(0, 0, 0), Cost(0.1, inf, 0)])
def test_impossible_costs_are_refused(cost: Cost) -> None:
    with pytest.raises(BadCostError):
        CostFit(cost)


def test_impossible_rounds_are_refused() -> None:
    for bad in (RoundCost(-1.0, 0.0), RoundCost(0.1, nan), RoundCost(0.1, 0.1, 0.0, 0.5)):
        with pytest.raises(BadCostError):
            bad.check()


def test_nnls_agrees_with_scipy() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        design = rng.normal(size=(40, 4))
        mine, loss = nnls(design, np.zeros(4), pull=0.0)
        theirs, norm = scipy_nnls(design, np.ones(40))
        assert loss == pytest.approx(norm * norm, rel=1e-3)
        assert np.allclose(mine, theirs, atol=1e-2)


@pytest.mark.parametrize("terms", [1, 2, 3, 4])
@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_nnls_gives_nothing_for_what_is_no_number(value: float, terms: int) -> None:
    design = np.ones((6, terms))
    design[2, terms - 1] = value
    with np.errstate(invalid="ignore"):
        found, _ = nnls(design, np.ones(terms))
    assert found.tolist() == [0.0] * terms


@pytest.mark.parametrize("share", [0.0, 0.25, 0.7])
def test_what_the_data_leave_open_is_as_the_prior_has_it(share: float) -> None:
    prior = np.array([share, 1.0 - share])
    assert np.allclose(nnls(np.ones((6, 2)), prior)[0], prior, atol=1e-3)


def test_two_outliers_that_agree_are_not_yet_a_change_and_the_errors_kept_are_bounded() -> None:
    cost = Cost(0.004, 1e-5, 2e-5)
    fit = CostFit(cost)
    for step in range(600):
        view, rows = 500 + 7 * (step % 300), 64
        fit.observe(view, rows, 0, cost.seconds(view, rows))
    before = fit.cost.seconds(2000, 64)
    for _ in range(2):
        fit.observe(2000, 64, 0, 10.0 * before)
    assert abs(fit.cost.seconds(2000, 64) / before - 1.0) < 0.01
    assert fit.suspects == 2
    assert fit.verdict().samples <= 256


def test_a_change_of_regime_moves_the_anchors_too() -> None:
    """Passes of one shape after the change say nothing of other shapes: the anchors do, and must have slowed alike."""
    true = Cost(0.004, 1e-5, 2e-5)
    anchors = tuple((v, r, 0, true.seconds(v, r)) for v in (200, 1000, 4000, 12_000) for r in (8, 64, 512, 2048))
    model = CostFit(true, anchors)
    for _ in range(40):
        model.observe(2000, 100, 0, 3.0 * true.seconds(2000, 100))
    assert model.cost.seconds(12_000, 8) == pytest.approx(3.0 * true.seconds(12_000, 8), rel=0.02)
    assert model.cost.seconds(200, 2048) == pytest.approx(3.0 * true.seconds(200, 2048), rel=0.02)
