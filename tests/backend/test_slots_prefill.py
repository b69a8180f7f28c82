"""A prompt's numbers do not depend on how it was cut, and a hit is a miss, bit for bit."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from mainspring.backend.generation import GRID
from mainspring.backend.torch_slots.slots import TorchSlots
from mainspring.ops.attention import tiled
from mainspring.ops.attention.reference import attention
from support.models import tiny_model
from support.slots import bits, one, opened, prompt, same, tiny_slots

PROMPT = prompt(2, 300)


def scanned(slots: TorchSlots, cuts: tuple[int, ...], *, drafting: bool) -> list[torch.Tensor]:
    slot = slots.open_slot(drafting=drafting)
    edges = [0, *cuts, len(PROMPT)]
    for first, last in pairwise(edges):
        slots.prefill_slot(slot, PROMPT[first:last], final=last == len(PROMPT))
    held = slots._slots[slot]
    assert held.logits is not None
    found = [*bits(slots, slot), held.logits.clone(), *([] if held.pending is None else [held.pending.clone()])]
    slots.close_slot(slot)
    return found


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("mtp", [True, False])
def test_pieces_leave_the_same_bits(packed: bool, mtp: bool) -> None:
    slots = tiny_slots(packed=packed, mtp=mtp)
    whole = scanned(slots, (), drafting=mtp)
    for cuts in ((64,), (256,), (128, 192), (64, 128, 192, 256)):
        assert same(scanned(slots, cuts, drafting=mtp), whole), cuts


@pytest.mark.parametrize("mtp", [True, False])
def test_a_hit_is_a_miss(mtp: bool) -> None:
    """From each grid position, and from the end: the same numbers, then the same tokens and the same drafts."""
    slots = tiny_slots(mtp=mtp)
    slot = slots.open_slot(drafting=mtp)
    saves = tuple(range(GRID, len(PROMPT), GRID))
    kept = slots.prefill_slot(slot, PROMPT, saves=saves)
    end = slots.save(slot)
    wanted = [*bits(slots, slot), slots._slots[slot].logits]
    logs = rounds(slots, slot, mtp)
    for checkpoint, at in [*zip(kept, saves, strict=True), (end, len(PROMPT))]:
        again = slots.open_slot(drafting=mtp)
        slots.restore(again, checkpoint)
        assert slots.position(again) == at
        if at < len(PROMPT):
            slots.prefill_slot(again, PROMPT[at:])
        assert same([*bits(slots, again), slots._slots[again].logits], wanted), at
        assert rounds(slots, again, mtp) == logs
        slots.close_slot(again)


def rounds(slots: TorchSlots, slot: int, mtp: bool) -> list[tuple[object, ...]]:
    slots.begin(slot, slots._slots[slot].rule, PROMPT)
    log, anchor = [], -1
    for _ in range(10):
        found = one(slots, slot, anchor, draft=3 if mtp else 0)
        anchor = found.tokens[-1]
        log.append((found.tokens, found.drafted, found.accepted))
    return log


def test_a_checkpoint_stays_what_it_was_while_slots_go_on() -> None:
    slots = tiny_slots()
    slot = slots.open_slot(drafting=False)
    (kept,) = slots.prefill_slot(slot, PROMPT, saves=(128,))
    wanted = bits(slots, slot)
    held = slots._checkpoints[kept]
    rows = held.buffer.rows[:, :, :, :128].clone()
    rounds(slots, slot, False)  # goes on writing in the buffer that the checkpoint shares
    again = slots.open_slot(drafting=False)
    slots.restore(again, kept)  # somebody writes it: rows are copied
    assert slots._slots[again].buffer is not held.buffer
    slots.close_slot(slot)
    third = slots.open_slot(drafting=False)
    slots.restore(third, kept)  # nobody does any more: taken over
    assert slots._slots[third].buffer is held.buffer
    fourth = slots.open_slot(drafting=False)
    slots.restore(fourth, kept)
    for each in (again, third, fourth):
        slots.prefill_slot(each, PROMPT[128:])
        assert same(bits(slots, each), wanted)
    assert torch.equal(held.buffer.rows[:, :, :, :128], rows)


def test_a_slot_that_failed_leaves_nothing_in_a_shared_buffer() -> None:
    """Rows past a checkpoint are read under a mask, where anything but a number would spread."""
    model = tiny_model(0)
    slots = tiny_slots(model=model, packed=False)
    slot = slots.open_slot(drafting=False)
    (kept,) = slots.prefill_slot(slot, PROMPT[:200], saves=(192,))
    slots.begin(slot, slots._slots[slot].rule, PROMPT)
    token = one(slots, slot).tokens[-1]
    weight = model.embed.weight[token].clone()
    model.embed.weight[token] = torch.nan
    assert one(slots, slot, token).fault is not None
    model.embed.weight[token] = weight
    slots.close_slot(slot)
    again = slots.open_slot(drafting=False)
    slots.restore(again, kept)
    assert slots._slots[again].buffer is slots._checkpoints[kept].buffer
    slots.prefill_slot(again, PROMPT[192:200])
    slots.begin(again, slots._slots[again].rule, PROMPT)
    assert one(slots, again).tokens == (token,)
    assert one(slots, again, token).fault is None


@pytest.mark.parametrize(("tokens", "start"), [([], 0), ([1] * 10, 10)])
def test_pieces_begin_on_the_grid(tokens: list[int], start: int) -> None:
    slots = tiny_slots()
    slot = slots.open_slot(drafting=False)
    if start:
        slots.prefill_slot(slot, np.array([1] * start))
    with pytest.raises(ValueError, match="multiple of 64"):
        slots.prefill_slot(slot, np.array(tokens, np.int64))


def test_checkpoints_are_refused_off_the_grid_and_after_rounds() -> None:
    slots = tiny_slots()
    slot = slots.open_slot(drafting=False)
    with pytest.raises(ValueError, match="multiples of 64"):
        slots.prefill_slot(slot, PROMPT, saves=(100,))
    slots.close_slot(slot)
    slot = opened(slots, PROMPT)
    one(slots, slot)
    with pytest.raises(ValueError, match="before the first round"):
        slots.save(slot)


@pytest.mark.parametrize("kind", ["full_attention", "linear_attention"])
def test_networks_of_one_kind_of_layer(kind: str) -> None:
    slots = tiny_slots(model=tiny_model(0, layer_types=[kind] * 4))
    slot = slots.open_slot(drafting=False)
    (kept,) = slots.prefill_slot(slot, PROMPT, saves=(256,))
    wanted = bits(slots, slot)
    again = slots.open_slot(drafting=False)
    slots.restore(again, kept)
    slots.prefill_slot(again, PROMPT[256:])
    assert same(bits(slots, again), wanted)
    token = one(slots, again).tokens[-1]
    assert one(slots, again, token, drafts=(1, 2)).fault is None


# ---------------------------------------------------------------- the attention alone


def rows(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_rows_of_one_call_are_those_of_a_later_start() -> None:
    q, keys, values = rows(0, 100, 4, 16), rows(1, 2, 512, 16), rows(2, 2, 512, 16)
    whole = tiled.prefill(q, keys, values, 0)
    for first in (40, 64, 99, 1):
        assert torch.equal(tiled.prefill(q[first:], keys, values, first), whole[first:])
        assert torch.equal(tiled.prefill(q[:first], keys, values, 0), whole[:first])


@pytest.mark.parametrize("start", [0, 37, 128, 500])
def test_both_forms_are_attention(start: int) -> None:
    T = 70
    q, keys, values = rows(0, T, 4, 16), rows(1, 2, 1024, 16), rows(2, 2, 1024, 16)
    k, v = (x[:, start : start + T].transpose(0, 1) for x in (keys, values))
    past = [(keys[:, :start], values[:, :start])]
    expected = attention(q, k, v, lengths=[T], parents=[0], past=past)
    assert (tiled.prefill(q, keys, values, start) - expected).abs().max() < 1e-5
    few = tiled.decode(q[:5], keys, values, tiled.decode_mask(start, 5, 2, q.dtype))
    assert (few - expected[:5]).abs().max() < 1e-5


def test_a_row_of_a_block_is_the_row_alone() -> None:
    """Also where the block reaches into the next stretch of keys."""
    q, keys, values = rows(0, 8, 4, 16), rows(1, 2, 1024, 16), rows(2, 2, 1024, 16)
    for start in (3, 505, 511, 700):
        block = tiled.decode(q, keys, values, tiled.decode_mask(start, 8, 2, q.dtype))
        for i in range(8):
            padded = torch.cat([q[i : i + 1], torch.zeros(7, 4, 16)])
            alone = tiled.decode(padded, keys, values, tiled.decode_mask(start + i, 8, 2, q.dtype))
            assert torch.equal(alone[0], block[i]), (start, i)
