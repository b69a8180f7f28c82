"""What a round costs, by what rounds took: terms found, noise and outliers borne, changes told."""

import numpy as np
import pytest

from mainspring.backend.generation import SlotLimits
from mainspring.backend.null import NullBackend
from mainspring.core.cost import RoundCost
from mainspring.engine.streams import Streams
from mainspring.node.generating import measure_rounds
from mainspring.node.roundfit import RoundFit

TRUE = RoundCost(0.010, 0.002, 3e-7)


def feed(
    fit: RoundFit, cost: RoundCost, rounds: int, *, seed: int = 0, noise: float = 0.0, tokens: float = 1.0
) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        slots = int(rng.integers(1, 9))
        context = slots * int(rng.integers(100, 20_000))
        seconds = cost.seconds(slots, context) * float(np.exp(rng.normal(0.0, noise)))
        fit.note(slots, context, seconds, round(slots * tokens))


def near(fit: RoundFit, cost: RoundCost, rel: float) -> None:
    for slots in (1, 4, 8):
        for context in (500, 8000, 80_000):
            assert fit.cost.seconds(slots, context) == pytest.approx(cost.seconds(slots, context), rel=rel)


@pytest.mark.parametrize(("noise", "rel"), [(0.0, 0.03), (0.1, 0.08)])
def test_the_terms_are_found(noise: float, rel: float) -> None:
    fit = RoundFit(RoundCost(0.001, 0.0001))
    feed(fit, TRUE, 200, noise=noise)
    near(fit, TRUE, rel)


def test_a_slow_round_now_and_then_moves_nothing() -> None:
    fit = RoundFit(TRUE)
    feed(fit, TRUE, 64)
    for _ in range(10):
        feed(fit, TRUE, 15)
        fit.note(4, 1000, 2.0, 4)
    near(fit, TRUE, 0.05)
    assert not fit.moved


def test_another_regime_is_followed_and_told() -> None:
    fit = RoundFit(TRUE)
    feed(fit, TRUE, 64)
    slower = RoundCost(0.040, 0.008, 1.2e-6)
    feed(fit, slower, 400)
    near(fit, slower, 0.1)
    assert fit.moved
    assert fit.tell() == fit.cost
    assert not fit.moved


def test_tokens_a_round_follow_what_text_yields() -> None:
    fit = RoundFit(TRUE)
    feed(fit, TRUE, 400, tokens=3.0)
    assert fit.cost.tokens == pytest.approx(3.0, abs=0.1)
    feed(fit, TRUE, 400, tokens=1.0)
    assert fit.cost.tokens == pytest.approx(1.0, abs=0.1)
    fit.cost.check()


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_times_that_are_none_change_nothing(seconds: float) -> None:
    fit = RoundFit(TRUE)
    for _ in range(64):
        fit.note(2, 100, seconds, 2)
    assert fit.cost == TRUE


def test_a_window_of_like_rounds_keeps_to_what_was_known() -> None:
    fit = RoundFit(TRUE)
    for _ in range(300):
        fit.note(2, 1000, TRUE.seconds(2, 1000), 2)
    assert fit.cost.d1 == pytest.approx(TRUE.d1, rel=0.2)


@pytest.mark.parametrize(("slots", "token_s", "configurations"), [(4, 0.0, 4), (4, 0.0015, 2), (1, 1.0, 1)])
def test_a_start_measures_as_much_as_its_budget_allows(slots: int, token_s: float, configurations: int) -> None:
    slept = [0.0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds

    backend = NullBackend(cost_seconds=(0.0, token_s, 0.0), sleep=sleep, round_seconds=(0.01, 0.002, 0.0))
    streams = Streams(backend.generation(SlotLimits(slots)))
    opened: list[int] = []
    real = streams.open
    streams.open = lambda spec: opened.append(len(spec.tokens)) or real(spec)  # type: ignore[method-assign, func-returns-value]
    fit = measure_rounds(streams, slots, 32_768, 300, lambda: slept[0])
    assert len(opened) == (1, 1 + slots, 2 + slots, 2 + 2 * slots)[configurations - 1]
    assert fit.cost.seconds(1, 64) == pytest.approx(0.012, rel=0.02)
    assert streams.free_slots == slots
    assert not len(streams.prefixes)
    assert streams.stats.rounds == 0
