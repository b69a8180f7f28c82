"""Slots over small random models, and what tests look at inside them."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from mainspring.backend.generation import NO_TOKEN, SlotLimits, SlotResult, SlotRound, TokenRule
from mainspring.backend.torch_cpu import TorchBackend
from mainspring.backend.torch_slots.slots import TorchSlots
from mainspring.engine.sampling import Sampling
from mainspring.model.hybrid import Hybrid
from mainspring.model.mtp import MtpHead
from mainspring.model.saving import initialise
from mainspring.plain_loop import PlainLoop
from support.models import random_tokens, tiny_config, tiny_model

GREEDY = Sampling()


def tiny_head(seed: int = 1) -> MtpHead:
    return initialise(MtpHead(tiny_config()), seed, std=0.15).requires_grad_(False).eval()


def tiny_slots(
    slots: int = 4, block_rows: int = 8, *, deterministic: bool = False, packed: bool | None = None, mtp: bool = False,
    model: Hybrid | None = None, vocab_size: int | None = None,
) -> TorchSlots:  # fmt: skip
    backend = TorchBackend(model or tiny_model(0), packed=packed, mtp=tiny_head() if mtp else None)
    return backend.generation(SlotLimits(slots, block_rows, deterministic, vocab_size))


def prompt(seed: int = 1, tokens: int = 150) -> np.ndarray:
    return random_tokens(seed, tokens).numpy()


def plain(tokens: np.ndarray, count: int, sampling: Sampling = GREEDY, stop_ids: Sequence[int] = ()) -> list[int]:
    """What the plain loop writes; it is slow, and asked for the same texts again and again."""
    return list(_plain(tuple(tokens.tolist()), count, sampling, tuple(stop_ids)))


@cache
def _plain(tokens: tuple[int, ...], count: int, sampling: Sampling, stop_ids: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(PlainLoop(tiny_model(0)).tokens(np.array(tokens), count, sampling, stop_ids))


def opened(slots: TorchSlots, tokens: np.ndarray, rule: TokenRule | None = None, *, drafting: bool = False) -> int:
    """A slot at the prompt's end."""
    slot = slots.open_slot(drafting=drafting)
    slots.prefill_slot(slot, tokens)
    slots.begin(slot, rule or TokenRule(), tokens)
    return slot


def one(slots: TorchSlots, slot: int, anchor: int = NO_TOKEN, most: int = 1000, **more: Any) -> SlotResult:
    """A round of this slot alone."""
    return slots.round((SlotRound(slot, anchor, most, **more),)).slots[0]


def bits(slots: TorchSlots, slot: int) -> list[torch.Tensor]:
    """All that a slot's future depends on."""
    held = slots._slots[slot]
    assert held.buffer is not None
    trunk = slots._network.attention_layers
    rows, drafting = held.buffer.rows[:trunk, :, :, : held.length], held.buffer.rows[trunk:, :, :, : held.drafted]
    return [held.states[:, held.side].clone(), held.conv.clone(), rows.clone(), drafting.clone()]


def same(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
