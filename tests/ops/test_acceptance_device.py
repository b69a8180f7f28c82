"""The rule as a device runs it is the definition on identical logits: zero mismatches."""

from collections import Counter

import numpy as np
import pytest
import torch

from mainspring.ops.acceptance import Rule, uniform
from mainspring.ops.acceptance import triton as kernels
from mainspring.ops.acceptance.batched import MOST_ROWS, PROMPT, Rules, choose
from mainspring.ops.acceptance.reference import NotFiniteError, Seen, adjusted, allowed, distribution, draw
from mainspring.ops.rounds import MOST_STOPS, NONE_ALLOWED, NOT_FINITE
from support.kernels import DEVICE

V = 700
RULES = [
    Rule(),
    Rule(1.0),
    Rule(0.7, top_k=5, seed=2),
    Rule(1.3, top_p=0.8, seed=3),
    Rule(1.0, top_k=300, top_p=0.95, seed=4),
    Rule(0.9, min_p=0.1, seed=2**63 + 5),
    Rule(1e-3, seed=6),
    Rule(1.0, top_k=1, seed=7),
    Rule(1.0, top_p=0.01, seed=8),
    Rule(0.8, top_k=40, top_p=0.9, min_p=0.02, seed=9, frequency=0.7, presence=0.3, repetition=1.3),
    Rule(0.0, frequency=-1.0, presence=0.5, bias=((3, 4.0), (5, -100.0))),
    Rule(0.0, repetition=0.5, bias=((699, 100.0),)),
]


def one(row: np.ndarray, rule: Rule, seen: Seen, drafts: list[int], at: int, banned: frozenset[int],
        mask: np.ndarray | None) -> int:  # fmt: skip
    try:
        made = adjusted(row, rule, seen, drafts, banned, mask)
    except NotFiniteError as error:
        return NONE_ALLOWED if "allowed" in str(error) else NOT_FINITE
    return draw(distribution(made, rule), uniform(rule.seed, at))


@pytest.mark.parametrize("kind", ["drawn", "ties", "wide"])
def test_every_rule_over_many_rows(kind: str) -> None:
    generator = np.random.default_rng(len(kind))
    R, rows = 4, 0
    stops = frozenset({1, 2, 650})
    for trial in range(12):
        logits = generator.normal(0, 30 if kind == "wide" else 3, (len(RULES) * R, V)).astype(np.float32)
        if kind == "ties":
            logits = np.round(logits)
        if trial == 5:
            logits[3, 9], logits[10, 0], logits[17] = np.nan, np.inf, -np.inf
        rules = Rules.empty(len(RULES) + 1, DEVICE)
        seen, drafts = [], generator.integers(0, 40, (len(RULES), R)).astype(np.int32)
        for slot, rule in enumerate(RULES):
            prompt = generator.integers(0, V, 60)
            reply = Counter(generator.integers(0, 60, 30).tolist())
            rules.put(slot, rule, stops, 2, V)
            rules.adjust(slot, rule, torch.from_numpy(prompt).to(DEVICE), V)
            assert rules.seen is not None
            for token, count in reply.items():
                rules.seen[slot, token] += count
            seen.append(Seen(frozenset(prompt.tolist()) if rule.repetition != 1.0 else frozenset(), reply))
        index = generator.integers(0, 4, len(RULES))
        masked = generator.random(len(RULES)) < 0.3
        masks = generator.integers(0, 2**32, (len(RULES) * R, -(-V // 32)), dtype=np.uint32)
        if trial == 7:
            masks[:] = 0
        uniforms = [uniform(rule.seed, int(at) + i) for rule, at in zip(RULES, index, strict=True) for i in range(R)]
        got = choose(
            torch.from_numpy(logits).to(DEVICE), torch.arange(len(RULES), device=DEVICE),
            torch.from_numpy(index).to(DEVICE),
            torch.from_numpy(drafts).to(DEVICE), torch.tensor(uniforms, dtype=torch.float64, device=DEVICE), rules,
            masks=torch.from_numpy(masks.view(np.int32)).to(DEVICE), masked=torch.from_numpy(masked).to(DEVICE),
        ).tolist()  # fmt: skip
        for slot, rule in enumerate(RULES):
            for i in range(R):
                line, at = slot * R + i, int(index[slot]) + i
                wanted = one(logits[line], rule, seen[slot], drafts[slot, :i].tolist(), at,
                             stops if at < 2 else frozenset(), masks[line] if masked[slot] else None)  # fmt: skip
                assert got[line] == wanted, (trial, rule, i)
                rows += 1
    assert rows == 12 * len(RULES) * R
    assert len(RULES) * R > MOST_ROWS  # more than one piece


def test_rows_without_filters_need_no_ranking() -> None:
    rules = Rules.empty(2, DEVICE)
    rules.put(0, Rule(0.9, min_p=0.05), frozenset(), 0, V)
    rules.put(1, Rule(), frozenset(), 0, V)
    logits = torch.randn(4, V, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    given = (
        logits, torch.tensor([0, 1], device=DEVICE), torch.zeros(2, dtype=torch.long, device=DEVICE),
        torch.zeros(2, 2, dtype=torch.int32, device=DEVICE), torch.full((4,), 0.3, dtype=torch.float64, device=DEVICE),
    )  # fmt: skip
    assert torch.equal(choose(*given, rules, ranked=False, adjusted=False), choose(*given, rules))


def test_a_new_stream_in_a_slot_has_nothing_of_the_last() -> None:
    rules = Rules.empty(2, DEVICE)
    prompt = torch.tensor([4, 5], device=DEVICE)
    rules.adjust(0, Rule(repetition=2.0, bias=((7, 1.0),)), prompt, V)
    assert rules.seen is not None
    assert rules.bias is not None
    assert rules.seen[0, 4] == PROMPT
    rules.adjust(0, Rule(frequency=1.0), prompt, V)
    assert not rules.seen[0].any()
    assert not rules.bias[0].any()
    with pytest.raises(ValueError, match=f"at most {MOST_STOPS}"):
        rules.put(0, Rule(), frozenset(range(MOST_STOPS + 1)), 0, V)


def test_words_of_a_mask_are_read_as_the_definition_reads_them() -> None:
    mask = np.zeros(-(-V // 32), np.uint32)
    mask[0], mask[3] = 0x80000001, 0x00010000
    rules, nothing = Rules.empty(1, DEVICE), torch.zeros(1, dtype=torch.long, device=DEVICE)
    for id_ in np.flatnonzero(allowed(mask, V)):
        logits = torch.zeros(1, V, device=DEVICE)
        logits[0, id_] = 1.0
        logits[0, 1] = 2.0
        token = choose(
            logits, nothing, nothing, nothing.int()[None], nothing.double(), rules,
            masks=torch.from_numpy(mask.view(np.int32)[None]).to(DEVICE), masked=nothing == 0,
        )  # fmt: skip
        assert token.item() == id_


@pytest.mark.parametrize("vocab", [5, 4096, 9000])
def test_largest_takes_the_lowest_id_among_equals(vocab: int) -> None:
    logits = torch.round(torch.randn(6, vocab, generator=torch.Generator().manual_seed(vocab))).to(DEVICE)
    logits[1] = 2.0
    wanted = [int(row.argmax()) for row in logits.cpu().numpy()]
    assert kernels.largest(logits).tolist() == wanted
    logits[2, vocab - 1], logits[3, 0], logits[4] = torch.nan, torch.inf, -torch.inf
    for row in (2, 3, 4):
        wanted[row] = NOT_FINITE
    assert kernels.largest(logits).tolist() == wanted
