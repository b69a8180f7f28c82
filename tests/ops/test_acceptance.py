"""The rule of choosing tokens against hand-made cases, a naive definition and exact enumeration of all chance."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.ops.acceptance import ACCEPT, DRAW, RESIDUAL, Rule, philox, reference, uniform
from mainspring.ops.acceptance.reference import (
    NotFiniteError,
    Seen,
    adjusted,
    allowed,
    distribution,
    draw,
    log_probabilities,
    ranked,
    residual,
    verify,
)

LOGITS = np.log(np.array([0.1, 0.4, 0.2, 0.2, 0.1], np.float64))


# ---------------------------------------------------------------- chance


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # known answers of the generator's authors
        ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox(counter: tuple[int, int, int, int], key: tuple[int, int], expected: tuple[int, ...]) -> None:
    assert philox(counter, key) == expected


def test_uniforms_differ_by_seed_place_and_lane() -> None:
    seeds = [*range(64), 2**32, 2**63, 2**64 - 1]
    values = [uniform(s, i, lane) for s in seeds for i in (0, 1, 2, 2**32) for lane in (DRAW, ACCEPT, RESIDUAL)]
    assert len(set(values)) == len(values)
    many = np.array([uniform(7, i) for i in range(4000)])
    assert 0.0 <= many.min() < many.max() < 1.0
    assert abs(many.mean() - 0.5) < 4 * math.sqrt(1 / 12 / len(many))


# ---------------------------------------------------------------- filters


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule(1.0), {1: 0.4, 2: 0.2, 3: 0.2, 0: 0.1, 4: 0.1}),
        (Rule(1.0, top_k=2), {1: 2 / 3, 2: 1 / 3}),  # of equals the lower id stays
        (Rule(1.0, top_p=0.5), {1: 2 / 3, 2: 1 / 3}),
        (Rule(1.0, top_p=0.3), {1: 1.0}),
        (Rule(1.0, top_k=3, top_p=0.7), {1: 2 / 3, 2: 1 / 3}),  # 0.5 of the three, 0.75 with the next
        (Rule(0.5), {1: 16 / 26, 2: 4 / 26, 3: 4 / 26, 0: 1 / 26, 4: 1 / 26}),
        (Rule(1.0, min_p=0.49), {1: 0.5, 2: 0.25, 3: 0.25}),
        (Rule(1.0, min_p=1.0), {1: 1.0}),
        (Rule(1.0, top_k=1), {1: 1.0}),
        (Rule(0.0), {1: 1.0}),
    ],
)
def test_the_distribution_is_the_one_stated(rule: Rule, expected: dict[int, float]) -> None:
    ids, p = distribution(LOGITS, rule)
    assert dict(zip(ids.tolist(), p.tolist(), strict=True)) == pytest.approx(expected)
    assert ids.tolist() == sorted(expected)


def test_greedy_takes_the_lowest_id_among_equals() -> None:
    assert verify(np.array([[0.0, 2.0, 2.0, 1.0]]), (), Rule(), Seen()).tokens == (1,)
    assert verify(np.array([[0.0, 2.0, 2.0, 1.0]]), (), Rule(bias=((3, 1.0),)), Seen()).tokens == (1,)


def test_very_low_temperatures_do_not_overflow() -> None:
    assert verify(np.array([[1e4, -1e4, 1e4 - 1]]), (), Rule(1e-3), Seen()).tokens == (0,)


def test_penalties_by_hand() -> None:
    seen = Seen(frozenset({0, 3}), Counter({1: 2}))
    row = adjusted(np.array([2.0, 3.0, 1.0, -1.0]), Rule(1.0, frequency=0.5, presence=0.25, repetition=2.0), seen, (2,))
    assert row.tolist() == [1.0, 1.5 - 0.25 - 1.0, 0.5 - 0.25 - 0.5, -2.0]
    biased = adjusted(np.zeros(4), Rule(bias=((2, 5.0), (0, -100.0))), Seen())
    assert biased.tolist() == [-100.0, 0.0, 5.0, 0.0]


def test_masks_and_bans() -> None:
    words = np.array([0b10110, 0b1], np.uint32)
    assert np.flatnonzero(allowed(words, 40)).tolist() == [1, 2, 4, 32]
    logits = np.arange(40.0)[None]
    assert verify(logits, (), Rule(), Seen(), masks=words[None]).tokens == (32,)
    assert verify(logits, (), Rule(), Seen(), stop_ids={39}, min_tokens=1).tokens == (38,)
    assert verify(logits, (), Rule(), Seen(), stop_ids={39}, min_tokens=1, index=1).stopped


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("rule", [Rule(), Rule(1.0), Rule(bias=((0, 1.0),))])
def test_what_is_not_a_number_is_refused(bad: float, rule: Rule) -> None:
    with pytest.raises(NotFiniteError):
        verify(np.array([[0.0, bad, 1.0]]), (), rule, Seen())


def test_nothing_allowed_is_refused() -> None:
    with pytest.raises(NotFiniteError):
        verify(np.zeros((1, 8)), (), Rule(), Seen(), masks=np.zeros((1, 1), np.uint32))


def test_logprobs_are_the_models_own() -> None:
    mine, top = log_probabilities(LOGITS + 3.0, 3, 3)
    assert mine == pytest.approx(math.log(0.2))
    assert [token for token, _ in top] == [1, 2, 3]
    assert top[0][1] == pytest.approx(math.log(0.4))


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.integers(1, 45))
def test_ranks_by_value_then_id(values: list[int], most: int) -> None:
    row = np.array(values, np.float64)
    expected = sorted(range(len(values)), key=lambda i: (-values[i], i))[:most]
    assert ranked(row, min(most, len(values))).tolist() == expected


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 3000), st.integers(1, 60))
def test_ranks_of_long_rows(seed: int, values: int, length: int, most: int) -> None:
    """With many ties, and with values that nothing may take."""
    chance = np.random.default_rng(seed)
    row = chance.integers(0, values, length).astype(np.float64)
    row[chance.random(length) < 0.1] = -np.inf
    expected = sorted(range(length), key=lambda i: (-row[i], i))[:most]
    assert ranked(row, min(most, length)).tolist() == expected


def naive(logits: Sequence[float], rule: Rule, prompt: Sequence[int], reply: Sequence[int]) -> dict[int, float]:
    """The stated rule, as one would say it."""
    row = [float(x) for x in logits]
    for token, value in rule.bias:
        row[token] += value
    for token in set(prompt) | set(reply):
        row[token] = row[token] / rule.repetition if row[token] > 0 else row[token] * rule.repetition
    for token in set(reply):
        row[token] -= rule.presence + rule.frequency * list(reply).count(token)
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    if rule.temperature == 0.0:
        return {order[0]: 1.0}
    order = order[: rule.top_k or len(order)]
    weights = {i: math.exp((row[i] - row[order[0]]) / rule.temperature) for i in order}
    total, before, stay = math.fsum(weights.values()), 0.0, []
    for i in order:
        if before < rule.top_p * total:
            stay.append(i)
        before += weights[i]
    stay = [i for i in stay if weights[i] >= rule.min_p * weights[stay[0]]]
    total = math.fsum(weights[i] for i in stay)
    return {i: weights[i] / total for i in stay}


RULES = [
    Rule(1.0),
    Rule(0.7, top_k=3),
    Rule(1.3, top_p=0.8),
    Rule(0.9, top_k=4, top_p=0.85, min_p=0.15),
    Rule(1.0, frequency=0.4, presence=0.3, repetition=1.2, bias=((1, 0.5),)),
    Rule(0.0, frequency=0.6),
    Rule(0.0),
]
VOCAB, PROMPT = 5, (0, 2, 2)


@given(st.lists(st.floats(-4, 4, width=32), min_size=2, max_size=30), st.sampled_from(RULES))
@settings(max_examples=200)
def test_the_distribution_is_the_naive_one(values: list[float], rule: Rule) -> None:
    if rule.top_p < 1.0 and len(set(values)) < len(values):
        values = [value + 1e-3 * i for i, value in enumerate(values)]  # sums in another order may part at the edge
    reply = [0, 1, 1]
    row = adjusted(np.array(values), rule, Seen(frozenset({0}), Counter(reply)))
    ids, p = distribution(row, rule)
    assert dict(zip(ids.tolist(), p.tolist(), strict=True)) == pytest.approx(naive(values, rule, [0], reply), abs=1e-12)


# ---------------------------------------------------------------- exact enumeration

Toy = Callable[[Sequence[int]], np.ndarray]


def toy(seed: int) -> Toy:
    """A language model: logits [VOCAB] after a reply so far."""

    def logits(reply: Sequence[int]) -> np.ndarray:
        return np.random.default_rng([seed, len(reply), *reply]).normal(size=VOCAB) * 1.5

    return logits


def target(model: Toy, rule: Rule, length: int) -> dict[tuple[int, ...], float]:
    """Probability of every reply of `length` tokens."""
    found = {(): 1.0}
    for _ in range(length):
        found = {(*reply, token): weight * p for reply, weight in found.items()
                 for token, p in naive(model(reply), rule, PROMPT, reply).items()}  # fmt: skip
    return found


def emitted(
    model: Toy, rule: Rule, drafts: Sequence[int], qs: Sequence[dict[int, float]] | None
) -> tuple[int, ...]:  # fmt: skip
    """What `verify` emits under the chance that is set."""
    rows = np.stack([model(drafts[:i]) for i in range(len(drafts) + 1)])
    q = None if qs is None else [(np.array(sorted(each)), np.array([each[i] for i in sorted(each)])) for each in qs]
    return verify(rows, drafts, rule, Seen(frozenset(PROMPT), Counter()), q=q).tokens


def edges(model: Toy, rule: Rule, drafts: Sequence[int], qs: Sequence[dict[int, float]] | None, place: int, lane: int
          ) -> list[float]:  # fmt: skip
    """Where, in [0, 1], what this uniform decides changes."""
    ids, p = distribution(
        adjusted(model(drafts[:place]), rule, Seen(frozenset(PROMPT), Counter()), drafts[:place]), rule
    )
    if lane == DRAW:
        return [0.0, *np.cumsum(p)[:-1].tolist(), 1.0]
    if qs is None or place >= len(drafts):
        return [0.0, 1.0]
    mine = dict(zip(ids.tolist(), p.tolist(), strict=True))
    if lane == ACCEPT:
        ratio = mine.get(drafts[place], 0.0) / qs[place][drafts[place]]
        return [0.0, ratio, 1.0] if 0.0 < ratio < 1.0 else [0.0, 1.0]
    order = sorted(qs[place])
    left = residual((ids, p), (np.array(order), np.array([qs[place][i] for i in order])))[1]
    return [0.0, *np.cumsum(left)[:-1].tolist(), 1.0]


def outcomes(
    model: Toy, rule: Rule, drafts: Sequence[int], qs: Sequence[dict[int, float]] | None, patch: pytest.MonkeyPatch
) -> Iterator[tuple[tuple[int, ...], float]]:
    """(emitted, probability) over every cell of chance."""
    keys = [(place, lane) for place in range(len(drafts) + 1) for lane in ((DRAW,) if qs is None else range(3))]
    splits = [edges(model, rule, drafts, qs, place, lane) for place, lane in keys]
    for choice in itertools.product(*(range(len(split) - 1) for split in splits)):
        middles = {key: (split[i] + split[i + 1]) / 2 for key, split, i in zip(keys, splits, choice, strict=True)}
        weight = math.prod(split[i + 1] - split[i] for split, i in zip(splits, choice, strict=True))
        patch.setattr(reference, "uniform", lambda _seed, at, lane=DRAW, known=middles: known[at, lane])
        yield emitted(model, rule, drafts, qs), weight


def completed(
    model: Toy, rule: Rule, reply: tuple[int, ...], weight: float, length: int
) -> dict[tuple[int, ...], float]:
    """What a block left open is drawn from the target, a token at a time."""
    found = {reply[:length]: weight}
    for _ in range(length - len(reply)):
        found = {(*have, token): w * p for have, w in found.items()
                 for token, p in naive(model(have), rule, PROMPT, have).items()}  # fmt: skip
    return found


def assert_equal(found: Counter[tuple[int, ...]], wanted: dict[tuple[int, ...], float]) -> None:
    assert math.fsum(wanted.values()) == pytest.approx(1.0, abs=1e-12)
    for reply in wanted.keys() | found.keys():
        assert abs(found[reply] - wanted.get(reply, 0.0)) < 1e-12, reply


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", [0, 1])
def test_blocks_of_drafts_are_exact(rule: Rule, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was drafted, the emitted tokens have the target's distribution, to 1e-12."""
    model = toy(seed)
    wanted = target(model, rule, 3)
    for drafts in ((1, 3), (4, 4), (0,), ()):
        found: Counter[tuple[int, ...]] = Counter()
        for reply, weight in outcomes(model, rule, drafts, None, monkeypatch):
            for whole, w in completed(model, rule, reply, weight, 3).items():
                found[whole] += w
        assert_equal(found, wanted)


def assert_drawn_blocks_are_exact(rule: Rule, seed: int, patch: pytest.MonkeyPatch) -> None:
    model, drafter = toy(seed), toy(seed + 100)
    wanted, found = target(model, rule, 2), Counter[tuple[int, ...]]()
    q = naive(drafter(()), Rule(1.0), (), ())
    for first, share in q.items():
        for reply, weight in outcomes(model, rule, (first,), [q], patch):
            for whole, w in completed(model, rule, reply, weight * share, 2).items():
                found[whole] += w
    assert_equal(found, wanted)


@pytest.mark.parametrize("rule", RULES[:4])
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_blocks_drawn_from_a_drafter_are_exact(rule: Rule, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts with a distribution of their own: accept iff u q < p, else the residual."""
    assert_drawn_blocks_are_exact(rule, seed, monkeypatch)


def test_a_wrong_rule_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing from p, not from the residual, after a rejection: what enumeration is there to find."""
    monkeypatch.setattr(reference, "residual", lambda p, _: p)
    with pytest.raises(AssertionError):
        assert_drawn_blocks_are_exact(RULES[0], 5, monkeypatch)


def test_both_rules_accept_a_point_equally_often(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rule = toy(5), Rule(1.0)
    shares = []
    for qs in (None, [{2: 1.0}]):
        found: Counter[int] = Counter()
        for reply, weight in outcomes(model, rule, (2,), qs, monkeypatch):
            found[reply[0]] += weight
        shares.append([found[token] for token in range(VOCAB)])
    assert shares[0] == pytest.approx(shares[1], abs=1e-12)


def test_draw_is_by_rising_id() -> None:
    p = (np.array([3, 7, 9]), np.array([0.5, 0.25, 0.25]))
    assert [draw(p, u) for u in (0.0, 0.49, 0.5, 0.74, 0.75, 0.999)] == [3, 3, 7, 7, 9, 9]


def test_a_block_ends_at_a_stop_and_at_its_most() -> None:
    logits = np.eye(5)[[1, 2, 3, 4]]
    whole = verify(logits, (1, 2, 3), Rule(), Seen())
    assert (whole.tokens, whole.accepted, whole.stopped) == ((1, 2, 3, 4), 3, False)
    stopped = verify(logits, (1, 2, 3), Rule(), Seen(), stop_ids={2})
    assert (stopped.tokens, stopped.accepted, stopped.stopped) == ((1, 2), 2, True)
    short = verify(logits, (1, 2, 3), Rule(), Seen(), most=2)
    assert (short.tokens, short.accepted, short.stopped) == ((1, 2), 2, False)
    wrong = verify(logits, (1, 4, 3), Rule(), Seen(), stop_ids={2})
    assert (wrong.tokens, wrong.accepted, wrong.stopped) == ((1, 2), 1, True)
