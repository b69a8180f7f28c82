"""Filters against hand-made cases, and frequencies against the distribution that is stated."""

import numpy as np
import pytest

from mainspring.engine.sampling import Sampling, choose, distribution

LOGITS = np.log(np.array([0.1, 0.4, 0.2, 0.2, 0.1], np.float64))


def test_greedy_takes_the_lowest_id_among_equals() -> None:
    assert choose(np.array([0.0, 2.0, 2.0, 1.0]), Sampling(), np.random.default_rng(0)) == 1


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(1.0), {1: 0.4, 2: 0.2, 3: 0.2, 0: 0.1, 4: 0.1}),
        (Sampling(1.0, top_k=2), {1: 2 / 3, 2: 1 / 3}),  # of equals the lower id stays
        (Sampling(1.0, top_p=0.5), {1: 2 / 3, 2: 1 / 3}),
        (Sampling(1.0, top_p=0.3), {1: 1.0}),
        (Sampling(1.0, top_k=3, top_p=0.7), {1: 2 / 3, 2: 1 / 3}),  # 0.5 of the three, 0.75 with the next
        (Sampling(0.5), {1: 16 / 26, 2: 4 / 26, 3: 4 / 26, 0: 1 / 26, 4: 1 / 26}),
    ],
)
def test_the_distribution_is_the_one_stated(sampling: Sampling, expected: dict[int, float]) -> None:
    ids, p = distribution(LOGITS, sampling)
    assert dict(zip(ids.tolist(), p.tolist(), strict=True)) == pytest.approx(expected)
    assert list(ids)[: len(expected)] == list(expected)


def test_tokens_come_as_often_as_the_distribution_says() -> None:
    chance, sampling = np.random.default_rng(3), Sampling(1.0, top_p=0.85)
    drawn = np.bincount([choose(LOGITS, sampling, chance) for _ in range(20_000)], minlength=5) / 20_000
    ids, p = distribution(LOGITS, sampling)
    expected = np.zeros(5)
    expected[ids] = p
    assert np.abs(drawn - expected).max() < 0.015  # four standard deviations


def test_very_low_temperatures_do_not_overflow() -> None:
    assert choose(np.array([1e4, -1e4, 1e4 - 1]), Sampling(1e-3), np.random.default_rng(0)) == 0
