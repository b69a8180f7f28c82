"""A state after a partly rejected block is the one that the kept rows alone leave, bit for bit."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mainspring.backend.generation import TokenRule
from mainspring.backend.torch_slots import slot as slot_module
from mainspring.backend.torch_slots.slots import TorchSlots
from mainspring.model.hybrid import Ops
from mainspring.ops.attention.reference import attention
from mainspring.ops.causal_conv.reference import causal_conv
from mainspring.ops.gated_delta.reference import gated_delta
from mainspring.ops.gated_delta.step import replay, step
from support.models import tiny_model
from support.slots import bits, one, opened, plain, prompt, same, tiny_slots

BLOCK = 8
PROMPT = prompt()
WANTED = plain(PROMPT, 2 * BLOCK)
WRONG = 7  # in none of the texts

pytestmark = pytest.mark.parametrize("packed", [True, False])


def after(slots: TorchSlots, kept: int, drafted: int) -> list[torch.Tensor]:
    """What a slot is after a block of 1 + `drafted` rows of which `kept` stay."""
    slot = opened(slots, PROMPT)
    first = one(slots, slot)
    assert first.tokens == (WANTED[0],)
    drafts = tuple(WANTED[1:kept]) + (WRONG,) * (drafted - kept + 1)
    found = one(slots, slot, first.tokens[-1], drafts=drafts)
    assert found.tokens == tuple(WANTED[1 : kept + 1])
    assert found.accepted == kept - 1
    held = bits(slots, slot)
    slots.close_slot(slot)
    return held


@pytest.mark.parametrize("deterministic", [True, False])
def test_every_number_of_kept_rows(packed: bool, deterministic: bool) -> None:
    slots = tiny_slots(block_rows=BLOCK, packed=packed, deterministic=deterministic)
    assert WRONG not in WANTED
    for kept in range(1, BLOCK + 1):
        alone = after(slots, kept, kept - 1)
        for drafted in {kept, BLOCK - 1} if kept < BLOCK else {BLOCK - 1}:
            assert same(after(slots, kept, drafted), alone), (kept, drafted)


@pytest.mark.parametrize("off_by", [-1, 1])
def test_a_wrong_commit_shows(packed: bool, off_by: int, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = tiny_slots(block_rows=BLOCK, packed=packed)
    alone = after(slots, 3, 2)

    def wrong(front: Any, back: Any, written: Any, kept: int) -> None:
        replay(front, back, written, kept + off_by)

    monkeypatch.setattr(slot_module, "replay", wrong)
    assert not same(after(slots, 3, BLOCK - 1), alone)


def test_a_forgotten_rollback_shows(packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = tiny_slots(block_rows=BLOCK, packed=packed)
    alone = after(slots, 3, 2)
    monkeypatch.setattr(slot_module, "replay", lambda *_: None)
    assert not same(after(slots, 3, BLOCK - 1), alone)


def test_many_rounds_stay_near_the_recurrence(packed: bool) -> None:
    """Against the definition in fp32, a token at a time: within 2e-5 of the state's scale after 40 mixed rounds."""
    slots = tiny_slots(block_rows=BLOCK, packed=packed)
    slot = opened(slots, PROMPT, TokenRule())
    text, drafted = list(one(slots, slot).tokens), 0
    wanted = plain(PROMPT, 120)
    for number in range(40):
        right = number % 4
        drafts = (*wanted[len(text) : len(text) + right], WRONG, WRONG)
        text += one(slots, slot, text[-1], drafts=drafts).tokens
        drafted += len(drafts)
    assert text == wanted[: len(text)]
    held = slots._slots[slot]
    model = tiny_model(0, ops=Ops(gated_delta, causal_conv, attention))
    state = model.new_state()
    tokens = torch.tensor([*PROMPT.tolist(), *text[:-1]])
    model.extend(tokens, [len(tokens)], [state], update=True)
    assert held.length == len(tokens)
    recurrent = torch.stack([layer.recurrent for layer in state.layers if hasattr(layer, "recurrent")])
    assert (held.states[:, held.side] - recurrent).abs().max() < 2e-5 * recurrent.abs().max()
    conv = torch.stack([layer.conv for layer in state.layers if hasattr(layer, "conv")])
    assert (held.conv - conv).abs().max() < 1e-4


class Copies(TorchDispatchMode):
    """Counts copies of arrays that end like a layer's state."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.shape, self.count = shape, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in ("copy_", "clone", "_to_copy", "index", "index_select", "cat", "stack"):
            first = args[0] if isinstance(args[0], torch.Tensor) else args[0][0]
            self.count += first.shape[-len(self.shape) :] == self.shape
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("planted", [False, True])
def test_no_state_is_copied_in_a_round(packed: bool, planted: bool) -> None:
    """The two parities are the only places where states are, and a round swaps them."""
    slots = tiny_slots(block_rows=BLOCK, packed=packed)
    slot = opened(slots, PROMPT)
    token = one(slots, slot).tokens[-1]
    held = slots._slots[slot]
    storage, side = held.states.data_ptr(), held.side
    with Copies(held.states.shape[2:]) as copies:
        for drafts in ((), tuple(WANTED[2:5]), (WRONG,)):
            token = one(slots, slot, token, drafts=drafts).tokens[-1]
            assert held.side == 1 - side
            side = held.side
        if planted:
            with torch.inference_mode():
                held.back(0).copy_(held.front(0))
    assert copies.count == planted
    assert held.states.data_ptr() == storage


def test_step_is_the_recurrence(packed: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(6, heads, size, generator=generator) for heads, size in ((2, 16), (2, 16), (4, 24)))
    beta, g = torch.rand(6, 4, generator=generator), -torch.rand(6, 4, generator=generator)
    front, back = torch.randn(2, 4, 16, 24, generator=generator)
    before = front.clone()
    k = k / k.norm(dim=-1, keepdim=True)
    o, written = step(front, back, q, k, v, beta, g.exp())
    expected, final = gated_delta(q, k, v, beta, g, lengths=[6], parents=[0], initial=[front], keep=True)
    assert final is not None
    assert (o - expected).abs().max() < 1e-5
    assert (back - final[0]).abs().max() < 1e-5
    assert torch.equal(front, before)
    for kept in range(1, 7):
        alone, again = torch.empty_like(front), torch.empty_like(front)
        step(front, alone, q[:kept], k[:kept], v[:kept], beta[:kept], g[:kept].exp())
        replay(front, again, written, kept)
        assert torch.equal(alone, again)
