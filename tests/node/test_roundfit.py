"""What a round costs, by what rounds took: terms found, noise and outliers borne, changes told."""

import numpy as np
import pytest

from mainspring.backend.generation import SlotLimits
from mainspring.backend.null import NullBackend
from mainspring.core.cost import RoundCost
from mainspring.engine.streams import Streams
from mainspring.node.generating import measure_rounds
from mainspring.node.roundfit import CELLS, RoundFit

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


@pytest.mark.parametrize("seed", range(8))
def test_a_machine_that_slows_while_a_stream_grows_prices_no_context(seed: int) -> None:
    """Half slower over 250 tokens of context, carried on to 8,192, would be fifteen times a round."""
    true, rng = RoundCost(0.0078, 0.0012, 4e-7), np.random.default_rng(seed)
    fit = RoundFit(true, 8192)
    for index in range(250):
        pace = 1.0 + 0.5 * index / 250
        fit.note(1, 100 + index, true.seconds(1, 100) * pace * float(np.exp(rng.normal(0.0, 0.05))), 1)
    assert fit.cost.seconds(1, 8192) < 2.0 * true.seconds(1, 8192)


PRICED = RoundCost(0.008, 0.001, 1e-5)


def test_context_that_has_its_price_is_charged_for() -> None:
    """Contexts far apart tell it, few rounds of each."""
    fit = RoundFit(RoundCost(0.008, 0.001), 8192)
    for context in (100, 200, 400, 800, 1600, 3200, 6400):
        for _ in range(8):
            fit.note(1, context, PRICED.seconds(1, context), 1)
    assert fit.cost.seconds(1, 6400) == pytest.approx(PRICED.seconds(1, 6400), rel=0.1)


def test_long_rounds_are_remembered_and_follow_the_pace_of_short_ones() -> None:
    fit = RoundFit(RoundCost(0.008, 0.001), 8192)
    for context in (100, 800, 6400):
        for _ in range(16):
            fit.note(1, context, PRICED.seconds(1, context), 1)
    for _ in range(1000):
        fit.note(1, 100, PRICED.seconds(1, 100), 1)
    assert fit.cost.seconds(1, 6400) == pytest.approx(PRICED.seconds(1, 6400), rel=0.1)
    for _ in range(1000):
        fit.note(1, 100, 2.0 * PRICED.seconds(1, 100), 1)
    assert fit.cost.seconds(1, 6400) == pytest.approx(2.0 * PRICED.seconds(1, 6400), rel=0.15)


def test_what_changed_for_the_longest_stream_alone_is_told() -> None:
    """The last round is a short one, of which nothing moved."""
    fit = RoundFit(PRICED, 8192)
    assert not fit.moved
    fit.cost = RoundCost(0.008, 0.002)
    fit.note(1, 100, fit.cost.seconds(1, 100), 1)
    assert fit.cost.seconds(1, 100) == pytest.approx(fit.told.seconds(1, 100), rel=0.01)
    assert fit.moved


def test_what_is_remembered_has_a_limit() -> None:
    fit = RoundFit(TRUE)
    for slots in range(1, 200):
        for _ in range(8):
            fit.note(slots, 100 * slots, TRUE.seconds(slots, 100 * slots), slots)
    assert 8 < len(fit._remembered) <= CELLS
