"""The device's slots over a very small model, beside the CPU's over the same one. Without a GPU kernels run through an
interpreter that takes milliseconds a program, so products go in one tile."""

from typing import Any

import numpy as np
import pytest
import torch

from mainspring.backend.cuda.network import Network
from mainspring.backend.cuda_slots.slots import CudaSlots
from mainspring.backend.generation import NO_TOKEN, SlotLimits, SlotResult, SlotRound, TokenRule
from mainspring.backend.torch_cpu import TorchBackend
from mainspring.backend.torch_slots.slots import TorchSlots
from mainspring.model.mtp import MtpHead
from mainspring.model.saving import initialise
from mainspring.ops.linear import triton_rows as rows
from support.kernels import DEVICE
from support.models import random_tokens, tiny_config, tiny_model

SHAPE: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_value_head_dim": 16,
}
Slots = CudaSlots | TorchSlots


def whole_tiles(patch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cpu":
        patch.setattr(rows, "tile", lambda count, *_: rows.Tile(max(16, 1 << (count - 1).bit_length()), 128, 64, 4, 1))


def head() -> MtpHead:
    return initialise(MtpHead(tiny_config(**SHAPE)), 3, std=0.5).requires_grad_(False).eval()


def on_device(slots: int = 3, block: int = 4, *, mtp: bool = False, deterministic: bool = False,
              vocab: int | None = None, **more: Any) -> CudaSlots:  # fmt: skip
    network = Network(tiny_model(2, std=0.4, **SHAPE).to(DEVICE))
    with torch.inference_mode():
        return CudaSlots(
            network, head().to(DEVICE) if mtp else None, SlotLimits(slots, block, deterministic, vocab), **more
        )


def on_cpu(slots: int = 3, block: int = 4, *, mtp: bool = False, vocab: int | None = None) -> TorchSlots:
    backend = TorchBackend(tiny_model(2, std=0.4, **SHAPE), packed=False, mtp=head() if mtp else None)
    return backend.generation(SlotLimits(slots, block, vocab_size=vocab))


def prompt(seed: int = 1, tokens: int = 6) -> np.ndarray:
    return random_tokens(seed, tokens, vocab=96).numpy()


def opened(slots: Slots, tokens: np.ndarray, rule: TokenRule | None = None, *, drafting: bool = False) -> int:
    slot = slots.open_slot(drafting=drafting)
    slots.prefill_slot(slot, tokens)
    slots.begin(slot, rule or TokenRule(), tokens)
    return slot


def one(slots: Slots, slot: int, anchor: int = NO_TOKEN, most: int = 50, **more: Any) -> SlotResult:
    return slots.round((SlotRound(slot, anchor, most, **more),)).slots[0]


def write(slots: Slots, slot: int, count: int, **more: Any) -> tuple[list[int], list[SlotResult]]:
    """A stream of `count` tokens, alone."""
    text: list[int] = []
    results = []
    while len(text) < count:
        results.append(one(slots, slot, text[-1] if text else NO_TOKEN, count - len(text), **more if text else {}))
        text += results[-1].tokens
    return text, results


def settled(slots: CudaSlots, slot: int) -> list[torch.Tensor]:
    """All that a slot's future depends on, once its kept rows are in the state: by a round that does not count."""
    held, a = slots._slots[slot], slots._arrays
    one(slots, slot, held.words[0], 1)
    now = held.words
    length = now[1]
    return [
        a.memory.states[slot].clone(), a.memory.window[slot, :, now[3], : 3 + now[2]].clone(),
        held.buffer.rows[:1, :length].clone(),
    ]  # fmt: skip
