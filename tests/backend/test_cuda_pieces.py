"""Pieces of prompts by graphs: what they leave is what launches leave, in any order of slots and sizes.

Without a GPU a graph is its forward, run again at each replay on the tables as they then are.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mainspring.backend.cuda.graphs import Buffers, Recorded
from mainspring.backend.cuda_slots import pieces
from mainspring.backend.cuda_slots.pieces import Pieces
from mainspring.backend.cuda_slots.slots import CudaSlots
from support.cuda_slots import on_device, prompt
from support.kernels import DEVICE

CLOSE = 1e-4 if DEVICE == "cpu" else 2e-2
LENGTH = 86


class Replays:
    """In the place of a recorded graph."""

    def __init__(self, buffers: Buffers, forward: Callable[[], torch.Tensor], result: torch.Tensor) -> None:
        self.buffers, self.forward, self.result = buffers, forward, result

    def replay(self) -> None:
        self.buffers.send()
        self.result.copy_(self.forward())


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Buffers]:
    """Tables of all that was recorded."""
    found: list[Buffers] = []
    kept = pieces.record

    def record(buffers: Buffers, forward: Callable[[], torch.Tensor], pool: Any) -> Recorded:
        found.append(buffers)
        if DEVICE == "cuda":
            return kept(buffers, forward, pool)
        result = torch.zeros(buffers.shape.rows, buffers.network.config.hidden_size)
        return Recorded(buffers, Replays(buffers, forward, result), result)

    monkeypatch.setattr(pieces, "record", record)
    if DEVICE == "cpu":
        event = SimpleNamespace(synchronize=lambda: None, record=lambda: None)
        monkeypatch.setattr(torch.cuda, "Event", lambda: event)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    return found


def slots(rows: int) -> tuple[CudaSlots, Pieces]:
    device = on_device(slots=2)
    device._trunk._pieces._rows = rows
    return device, device._trunk._pieces


def logits(device: CudaSlots, turns: tuple[tuple[int, int], ...]) -> list[np.ndarray]:
    """Of two slots, each at its prompt's end; `turns`: which slot scans its prompt how far next."""
    prompts = [prompt(seed, LENGTH) for seed in (1, 2)]
    opened = [device.open_slot(drafting=False, capacity=256) for _ in prompts]
    at = [0, 0]
    for which, to in turns:
        with np.errstate(all="ignore"):  # nobody writes the outputs of padded rows
            device.prefill_slot(opened[which], prompts[which][at[which] : to], final=to == LENGTH)
        at[which] = to
    found = [device._slot(number).logits for number in opened]
    assert all(each is not None for each in found)
    return [each.float().cpu().numpy() for each in found if each is not None]


def test_recorded_pieces_leave_what_launched_ones_leave(made: list[Buffers]) -> None:
    turns = ((0, 64), (1, LENGTH), (0, LENGTH))
    plain, _ = slots(0)
    wanted = logits(plain, turns)
    assert not made
    device, recorder = slots(1024)
    found = logits(device, turns)
    assert len(made) == len(recorder._recorded) == 2  # of 64 rows, which 22 share, and of 128
    for got, right in zip(found, wanted, strict=True):
        assert np.abs(got - right).max() < CLOSE
    assert np.abs(wanted[0] - wanted[1]).max() > 100 * CLOSE


def test_long_pieces_are_launched_and_the_least_used_shape_goes(
    made: list[Buffers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "MOST_RECORDED", 1)
    device, _ = slots(64)
    logits(device, ((0, 64), (0, LENGTH), (1, LENGTH)))
    assert [each.shape.view_rows for each in made] == [64]
    device, recorder = slots(128)
    logits(device, ((0, 64), (1, LENGTH), (0, LENGTH)))
    assert [each.shape.view_rows for each in made[1:]] == [64, 128, 64]
    assert len(recorder._recorded) == 1


@pytest.mark.skipif(DEVICE == "cuda", reason="the device does get on")
def test_a_piece_that_may_be_under_way_is_waited_for_before_its_tables_go(
    made: list[Buffers], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Event:
        """Of a device that gets to nothing by itself."""

        def __init__(self) -> None:
            self.done = True
            events.append(self)

        def record(self) -> None:
            self.done = False

        def synchronize(self) -> None:
            self.done = True

    events: list[Event] = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(pieces, "MOST_RECORDED", 1)
    kept = pieces.record

    def record(*given: Any) -> Recorded:
        assert all(event.done for event in events)
        return kept(*given)

    monkeypatch.setattr(pieces, "record", record)
    device, _ = slots(128)
    slot = device.open_slot(drafting=False, capacity=256)
    for start, end in ((0, 64), (64, 192), (192, 256)):
        device.prefill_slot(slot, prompt(1, 256)[start:end], final=False)
    assert [each.shape.view_rows for each in made] == [64, 128, 64]
