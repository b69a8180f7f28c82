"""Greedy text with drafts is greedy text without, alone and in company: bit for bit in deterministic mode."""

from typing import Any

import numpy as np
import pytest
import torch

from mainspring.backend.generation import NO_TOKEN, SlotRound, TokenRule
from mainspring.backend.torch_slots import network
from mainspring.backend.torch_slots.slots import TorchSlots
from mainspring.engine.sampling import Sampling
from mainspring.errors import DeviceError
from support.slots import bits, one, opened, plain, prompt, same, tiny_slots

COUNT = 40
PROMPT = prompt(3, 100)
OTHERS = [prompt(seed, 40 * seed) for seed in (4, 5, 6)]


def written(
    slots: TorchSlots, rights: list[int], rule: TokenRule | None = None
) -> tuple[list[int], list[torch.Tensor]]:
    """Text of COUNT tokens and the slot after it, where a round's first `rights[n]` drafts are right."""
    choice = None if rule is None else rule.choice
    sampling = Sampling() if choice is None else Sampling(choice.temperature, choice.top_k, choice.top_p, choice.seed)
    wanted = plain(PROMPT, COUNT + 8, sampling)
    slot = opened(slots, PROMPT, rule)
    text, number = list(one(slots, slot).tokens), 0
    while len(text) < COUNT:
        right = rights[number % len(rights)]
        drafts = (*wanted[len(text) : len(text) + right], 7, 7)[:7] if right >= 0 else ()
        text += one(slots, slot, text[-1], COUNT - len(text), drafts=drafts).tokens
        number += 1
    held = bits(slots, slot)
    slots.close_slot(slot)
    return text, held


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("rights", [[0], [5], [1, 0, 7, 3], [2, -1]])
def test_drafts_change_no_bit(packed: bool, deterministic: bool, rights: list[int]) -> None:
    slots = tiny_slots(packed=packed, deterministic=deterministic)
    text, held = written(slots, [-1])
    assert text == plain(PROMPT, COUNT)
    found, after = written(slots, rights)
    assert found == text
    assert same(after, held)


@pytest.mark.parametrize("deterministic", [True, False])
def test_drafts_change_no_sampled_text(deterministic: bool) -> None:
    slots = tiny_slots(deterministic=deterministic)
    for seed in range(4):
        rule = TokenRule(Sampling(1.0, top_k=40, top_p=0.9, seed=seed).rule)
        assert written(slots, [3, 0, 5], rule)[0] == written(slots, [-1], rule)[0]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("deterministic", [True, False])
def test_company_changes_no_bit(packed: bool, deterministic: bool) -> None:
    slots = tiny_slots(packed=packed, deterministic=deterministic)
    text, held = written(slots, [-1])
    others = [opened(slots, each, TokenRule(Sampling(1.0, seed=9).rule)) for each in OTHERS[:3]]
    mine = opened(slots, PROMPT)  # the last slot
    anchors = dict.fromkeys([*others, mine], NO_TOKEN)
    seen: list[int] = []
    while len(seen) < COUNT:
        order = [mine, *others] if len(seen) % 2 else [*others, mine]
        parts = tuple(SlotRound(slot, anchors[slot], COUNT - len(seen) if slot == mine else 99,
                                drafts=(5, 9) if slot != mine and anchors[slot] >= 0 else ())
                      for slot in order)  # fmt: skip
        for slot, found in zip(order, slots.round(parts).slots, strict=True):
            anchors[slot] = found.tokens[-1]
            if slot == mine:
                seen += found.tokens
    assert seen == text
    assert same(bits(slots, mine), held)


def test_rounds_have_one_shape_in_deterministic_mode() -> None:
    slots = tiny_slots(3, 5, deterministic=True)
    slot = opened(slots, PROMPT)
    first = slots.round((SlotRound(slot, NO_TOKEN, 9),))
    assert first.rows == 0  # the first token needs no forward
    anchor = first.slots[0].tokens[-1]
    assert slots.round((SlotRound(slot, anchor, 9),)).rows == 15
    free = tiny_slots(3, 5)
    slot = opened(free, PROMPT)
    one(free, slot)
    assert free.round((SlotRound(slot, anchor, 9, drafts=(1, 2)),)).rows == 3


def test_it_is_the_plain_loop_but_for_near_ties() -> None:
    """Where texts part, the plain loop's two largest logits are within 1e-4 of each other."""
    from mainspring.plain_loop import PlainLoop
    from support.models import tiny_model

    slots, model = tiny_slots(), tiny_model(0)
    for seed in range(6):
        tokens = prompt(20 + seed, 70)
        slot = opened(slots, tokens)
        text = list(one(slots, slot).tokens)
        while len(text) < 60:
            text += one(slots, slot, text[-1]).tokens
        slots.close_slot(slot)
        wanted = plain(tokens, 60)
        parted = next((i for i, (a, b) in enumerate(zip(text, wanted, strict=True)) if a != b), None)
        if parted is not None:
            loop = PlainLoop(model)
            logits = loop.advance(model.new_state(), np.concatenate([tokens, wanted[:parted]]))
            assert np.sort(logits)[-1] - logits[text[parted]] < 1e-4


def test_products_that_depend_on_a_rows_place_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def uneven(module: Any, x: torch.Tensor, least: int) -> Any:
        return module(x + 1e-7 * torch.arange(len(x))[:, None])

    monkeypatch.setattr(network, "product", uneven)
    tiny_slots()
    with pytest.raises(DeviceError, match="row's place"):
        tiny_slots(deterministic=True)
