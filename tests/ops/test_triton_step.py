"""Rows of a round: the recurrence, and a state that rejected rows were never in."""

import pytest
import torch

from mainspring.ops import rounds
from mainspring.ops.delta_inputs import Heads
from mainspring.ops.delta_inputs import reference as inputs
from mainspring.ops.gated_delta import reference as plain
from mainspring.ops.gated_delta.triton_step import Memory, step
from support.kernels import ACCURATE, DEVICE, error, randn

HEADS = Heads(1, 2, 32)
WIDTH = HEADS.channels + 2 * 32 + 2 * 2
BLOCK = 8
EVERY = BLOCK if DEVICE == "cuda" else 5
"""Rows of a block whose every part is tried: through the interpreter, two more than the convolution looks back."""
CONV, A_LOG, DT_BIAS = randn(0, HEADS.channels, 4) / 2, randn(1, 2) / 2, randn(2, 2) / 2


def lines(*lanes: tuple[int, int, int, int]) -> torch.Tensor:
    """(slot, count, kept, side) a lane."""
    return torch.tensor([[*lane] + [0] * (rounds.PLAN - 4) for lane in lanes], dtype=torch.int32, device=DEVICE)


def slots(count: int = 2, layers: int = 1, block: int = BLOCK) -> Memory:
    memory = Memory.empty(count, layers, block, HEADS, torch.float32, torch.device(DEVICE))
    for n, array in enumerate(memory):
        array.copy_(randn(20 + n, *array.shape))  # nothing may rely on zeros
    return memory


def run(memory: Memory, rows: torch.Tensor, plan: torch.Tensor, layer: int = 0) -> torch.Tensor:
    o = torch.full((len(rows), 2 * 32), torch.nan, device=DEVICE)
    step(rows, CONV, A_LOG, DT_BIAS, o, heads=HEADS, plan=plan, memory=memory, layer=layer)
    return o


def state_after(memory: Memory, slot: int, kept: int, side: int) -> list[torch.Tensor]:
    """What the next round starts from: one row more applies what was kept."""
    run(memory, randn(99, 1, WIDTH), lines((slot, 1, kept, side)))
    return [memory.states[slot].clone(), memory.window[slot, :, 1 - side, :3].clone()]


@pytest.mark.parametrize("layer", [0, 1])
def test_it_is_the_recurrence_over_rounds(layer: int) -> None:
    memory = slots(3, 2)
    start, history = memory.states[1, layer].clone(), memory.window[1, layer, 0, :3].clone()
    text = randn(5, 12, WIDTH)
    outputs, at, side, kept = [], 0, 0, 0
    for count, keep in ((4, 2), (3, 3), (5, 1), (6, 6)):
        block = torch.cat([text[at : at + keep], randn(40 + at, count - keep, WIDTH)])
        o = run(memory, block, lines((1, count, kept, side)), layer)
        outputs.append(o[:keep])
        at, side, kept = at + keep, 1 - side, keep
    state_after(memory, 1, kept, side) if layer == 0 else run(memory, text[:1], lines((1, 1, kept, side)), layer)
    where = {"lengths": [12], "parents": [0], "keep": True}
    q, k, v, beta, g, tails = inputs.delta_inputs(
        text.double(),
        CONV.double(),
        A_LOG.double(),
        DT_BIAS.double(),
        heads=HEADS,
        history=history.double()[None],
        **where,
    )
    o, final = plain.gated_delta(q, k, v, beta, g, initial=start.double()[None], **where)
    assert error(torch.cat(outputs), o.flatten(1)) < 10 * ACCURATE
    assert error(memory.states[1, layer], final[0]) < 10 * ACCURATE
    assert torch.equal(memory.window[1, layer, 1 - side, :3], text[-3:, : HEADS.channels])
    assert tails is not None


def test_every_number_of_kept_rows_is_the_state_of_those_rows_alone() -> None:
    text = randn(6, EVERY, WIDTH)
    singly, side = slots(block=EVERY), 0
    for kept in range(1, EVERY + 1):
        whole, alone = slots(block=EVERY), slots(block=EVERY)
        rejected = torch.cat([text[:kept], randn(50, EVERY - kept, WIDTH)])
        a = run(whole, rejected, lines((1, EVERY, 0, 0)))
        b = run(alone, text[:kept], lines((1, kept, 0, 0)))
        assert torch.equal(a[:kept], b)
        c = run(singly, text[kept - 1 : kept], lines((1, 1, min(kept - 1, 1), side)))
        assert torch.equal(c[0], a[kept - 1])
        side = 1 - side
        after = state_after(whole, 1, kept, 1)
        assert all(map(torch.equal, after, state_after(alone, 1, kept, 1)))
        assert all(map(torch.equal, after, state_after(Memory(*(x.clone() for x in singly)), 1, 1, side)))


@pytest.mark.parametrize("off_by", [-1, 1])
def test_a_wrong_number_of_kept_rows_shows(off_by: int) -> None:
    text = randn(6, BLOCK, WIDTH)
    whole, alone = slots(), slots()
    run(whole, text, lines((1, BLOCK, 0, 0)))
    run(alone, text[:3], lines((1, 3, 0, 0)))
    wrong, right = state_after(whole, 1, 3 + off_by, 1), state_after(alone, 1, 3, 1)
    assert not any(map(torch.equal, wrong, right))


def test_a_round_thrown_away_leaves_the_state_of_before() -> None:
    text = randn(6, 5, WIDTH)
    thrown, straight = slots(), slots()
    for memory in (thrown, straight):
        run(memory, text[:2], lines((0, 2, 0, 0)))
    run(thrown, randn(7, 4, WIDTH), lines((0, 4, 2, 1)))
    a = run(thrown, text[2:], lines((0, 3, 0, 0)))  # none of its rows stands
    b = run(straight, text[2:], lines((0, 3, 2, 1)))
    assert torch.equal(a, b)
    assert all(map(torch.equal, state_after(thrown, 0, 3, 1), state_after(straight, 0, 3, 0)))


def test_company_and_lanes_that_do_nothing_change_no_bit() -> None:
    text = randn(6, 3, WIDTH)
    alone, together = slots(3), slots(3)
    before = [array.clone() for array in together]
    a = run(alone, text, lines((1, 3, 0, 0)))
    block = torch.cat([randn(8, 3, WIDTH), text, randn(9, 3, WIDTH)])
    b = run(together, block, lines((0, 0, 5, 0), (1, 3, 0, 0), (2, 2, 3, 1)))
    assert torch.equal(a, b[3:6])
    assert not b[:3].any()
    assert not b[8:].any()
    for array, old in zip(together, before, strict=True):
        assert torch.equal(array[0], old[0])


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 8"):
        run(slots(), randn(0, 9, WIDTH), lines((0, 9, 0, 0)))
