import numpy as np
import pytest

from mainspring.bench.stats import Sample, others_cores, summarize


def sample(arm: str, number: int, units: float, seconds: float, others: float | None = None) -> Sample:
    return Sample(arm, number, 0, units, round(seconds * 1e9), others)


def noisy(rng: np.random.Generator, truth: float, rounds: int) -> list[Sample]:
    """Arm B does `truth` times A's rate; both share each round's disturbance and have noise of their own."""
    samples = []
    for number in range(rounds):
        shared = rng.uniform(0.7, 1.3)
        samples.append(sample("A", number, 100, shared * rng.normal(1.0, 0.05)))
        samples.append(sample("B", number, 100, shared * rng.normal(1.0, 0.05) / truth))
    return samples


def test_the_rate_is_a_ratio_of_sums_and_not_a_mean_of_ratios() -> None:
    # 1 token in 10 ms, then 100 tokens in 10 s: 100/s and 10/s. Their mean, 55, describes nobody's throughput.
    arms, ratios = summarize([sample("A", 0, 1, 0.01), sample("A", 1, 100, 10.0)], seed=0)
    assert arms[0].rate == pytest.approx(101 / 10.01)
    assert arms[0].rate != pytest.approx(55.0, rel=0.5)
    assert (arms[0].minimum, arms[0].median, arms[0].maximum) == pytest.approx((10.0, 55.0, 100.0))
    assert ratios == ()


def test_the_ratio_between_arms_is_of_their_rates() -> None:
    samples = [sample("A", 0, 1, 1), sample("B", 0, 8, 1), sample("A", 1, 9, 1), sample("B", 1, 12, 1)]
    _, (ratio,) = summarize(samples, seed=0)
    assert (ratio.arm, ratio.baseline) == ("B", "A")
    assert ratio.ratio == pytest.approx(2.0)  # 20/10; the mean of 8 and 4/3 would be 4.67


def test_intervals_are_seeded() -> None:
    samples = noisy(np.random.default_rng(1), 1.5, 12)
    assert summarize(samples, seed=7) == summarize(samples, seed=7)
    assert summarize(samples, seed=7) != summarize(samples, seed=8)


def test_intervals_cover_the_truth_about_as_often_as_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.bench.stats.RESAMPLES", 1000)
    rng = np.random.default_rng(3)
    covered = 0
    for seed in range(200):
        _, (ratio,) = summarize(noisy(rng, 1.5, 20), seed=seed)
        assert ratio.interval is not None
        covered += ratio.interval.low <= 1.5 <= ratio.interval.high
    assert 175 <= covered <= 199  # 190 in expectation, a little fewer for 20 rounds


def test_pairing_by_round_takes_shared_disturbance_out_of_ratios() -> None:
    arms, (ratio,) = summarize(noisy(np.random.default_rng(5), 1.0, 20), seed=0)
    assert arms[0].interval is not None
    assert ratio.interval is not None
    rate_width = (arms[0].interval.high - arms[0].interval.low) / arms[0].rate
    ratio_width = (ratio.interval.high - ratio.interval.low) / ratio.ratio
    assert ratio_width < 0.5 * rate_width


def test_one_round_has_no_interval() -> None:
    arms, (ratio,) = summarize([sample("A", 0, 1, 1), sample("B", 0, 1, 1)], seed=0)
    assert arms[0].interval is None
    assert ratio.interval is None


def test_an_arm_missing_from_a_round_is_refused() -> None:
    with pytest.raises(ValueError, match="no time in some round"):
        summarize([sample("A", 0, 1, 1), sample("A", 1, 1, 1), sample("B", 0, 1, 1)], seed=0)


def test_load_is_weighted_by_duration() -> None:
    samples = [sample("A", 0, 1, 9.0, 1.0), sample("A", 0, 1, 1.0, 0.0), sample("A", 0, 1, 5.0, None)]
    assert others_cores(samples) == pytest.approx(0.9)
    assert others_cores([sample("A", 0, 1, 1.0, -0.01)]) == 0.0
    assert others_cores([sample("A", 0, 1, 1.0)]) is None
