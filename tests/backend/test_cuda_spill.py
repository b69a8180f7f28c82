"""Checkpoints out of the device and into it again: the same bits, whatever the device did meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mainspring.backend.cuda_slots import spilling
from mainspring.backend.cuda_slots.buffers import Buffer
from mainspring.backend.cuda_slots.slots import CudaSlots
from mainspring.backend.generation import TokenRule
from mainspring.engine.prefix_disk import PrefixDisk
from mainspring.engine.stream_records import StreamSpec
from mainspring.engine.streams import Streams
from support.cuda_slots import on_device, prompt, whole_tiles, write
from support.kernels import DEVICE
from support.streams import run

PROMPT = prompt(4, 70)


@pytest.fixture(autouse=True)
def _one_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    whole_tiles(monkeypatch)


def saved(device: CudaSlots) -> tuple[int, int, int]:
    """(slot, its checkpoint at 64, the one at its prompt's end)."""
    slot = device.open_slot(drafting=True)
    (early,) = device.prefill_slot(slot, PROMPT, saves=(64,))
    return slot, early, device.save(slot)


def arrays_of(device: CudaSlots, checkpoint: int) -> dict[str, Any]:
    leaving = device.dump(checkpoint)
    assert leaving.begin()
    return aside(leaving)


def aside(leaving: spilling.Leaving) -> dict[str, Any]:
    """Taken by another thread, as it is."""
    found: list[dict[str, Any]] = []
    thread = Thread(target=lambda: found.append(leaving.arrays()))
    thread.start()
    thread.join(60.0)
    return found[0]


def parts(device: CudaSlots, checkpoint: int) -> list[torch.Tensor]:
    kept = device._checkpoints[checkpoint]
    rows = kept.buffer.rows[:, : kept.length]
    found = [x.clone() for x in (rows, kept.recurrent, kept.conv, kept.pending, kept.logits) if x is not None]
    # As bytes: a drafting head has not written its last row, and memory may hold what is no number, unequal to itself.
    return [x.contiguous().view(torch.uint8) for x in found]


@pytest.mark.parametrize("piece", [100, spilling.PIECE])
def test_out_and_in_is_the_same_bits(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilling, "PIECE", piece)
    device, other = on_device(mtp=True), on_device(mtp=True)
    _, early, whole = saved(device)
    for checkpoint, length, optional in ((early, 64, {"pending"}), (whole, 70, {"pending", "logits"})):
        arrays = arrays_of(device, checkpoint)
        assert arrays.keys() == {"rows", "recurrent", "conv", "counts"} | optional
        assert device.dump(checkpoint).nbytes == sum(each.nbytes for each in arrays.values())
        there = other.load(arrays, length)
        assert all(map(torch.equal, parts(device, checkpoint), parts(other, there)))
        assert other._checkpoints[there].read == device._checkpoints[checkpoint].read
        assert other.checkpoint_size(there).own == device.checkpoint_size(checkpoint).own


def test_text_goes_on_as_from_the_original() -> None:
    device, other = on_device(mtp=True), on_device(mtp=True)
    slot, early, whole = saved(device)
    arrays = [arrays_of(device, each) for each in (early, whole)]
    device.begin(slot, TokenRule(), PROMPT)
    wanted = write(device, slot, 5, draft=2)
    for length, each in zip((64, 70), arrays, strict=True):
        there = other.load(each, length)
        again = other.open_slot(drafting=True)
        other.restore(again, there)
        if length < len(PROMPT):
            other.prefill_slot(again, PROMPT[length:])
        other.begin(again, TokenRule(), PROMPT)
        assert write(other, again, 5, draft=2) == wanted
        other.close_slot(again)
        other.release(there)


def test_what_left_is_apart_from_whoever_writes_behind_it() -> None:
    """The checkpoint is let go of before its bytes are fetched; a shorter one's stream takes the buffer over and writes
    other rows where its were."""
    device = on_device(mtp=True)
    slot, early, whole = saved(device)
    before = parts(device, whole)
    leaving = device.dump(whole)
    assert leaving.begin()
    device.release(whole)
    device.close_slot(slot)
    other = device.open_slot(drafting=True)
    device.restore(other, early)
    buffer = device._slots[other].buffer
    assert buffer is device._checkpoints[early].buffer
    device.prefill_slot(other, prompt(9, 6))
    assert not torch.equal(buffer.rows[:, :70], before[0])
    there = device.load(aside(leaving), 70)
    assert all(map(torch.equal, parts(device, there), before))


def test_types_that_numpy_lacks_go_as_their_bits() -> None:
    tensor = torch.randn(7, 5).to(torch.bfloat16).to(DEVICE)
    way = spilling.Way(tensor.device)
    found = way.down(tensor, way.mark())
    assert (found.dtype, found.shape) == (np.int16, (7, 5))
    assert torch.equal(torch.from_numpy(found).view(torch.bfloat16), tensor.cpu())


def test_no_memory_for_a_copy_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    device = on_device()
    slot = device.open_slot(drafting=False)
    device.prefill_slot(slot, PROMPT)
    leaving = device.dump(device.save(slot))

    def full(*_: Any, **__: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch.Tensor, "clone", full)
    assert not leaving.begin()


def test_no_memory_on_the_way_in_is_a_miss_and_the_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = StreamSpec(id="a", tokens=PROMPT, max_tokens=3)
    with life(tmp_path) as streams:
        first = run(streams, spec)

    def full(*_: Any, **__: Any) -> Buffer:
        raise torch.OutOfMemoryError

    with life(tmp_path) as streams:
        with monkeypatch.context() as patch:
            patch.setattr(spilling, "Buffer", SimpleNamespace(empty=full))
            told = run(streams, spec)
        assert (told.ended["a"].cached_tokens, told.log) == (0, first.log)
        streams.prefixes.clear()
        assert run(streams, replace(spec, id="b")).ended["b"].cached_tokens == 70


def test_what_is_of_something_else_is_refused() -> None:
    device = on_device(mtp=True)
    arrays = arrays_of(device, saved(device)[2])
    device.load(arrays, 70)
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"conv": None}, "conv"),
        ({"rows": arrays["rows"][:, :-1]}, "rows"),
        ({"recurrent": arrays["recurrent"].view(np.int32)}, "recurrent"),
        ({"logits": arrays["logits"][:-1]}, "logits"),
        ({"counts": None}, "not of this prompt"),
        ({"counts": np.array([64, 0])}, "not of this prompt"),
        ({"counts": np.array([70, 71])}, "drafting head"),
    )
    for change, why in wrong:
        with pytest.raises(ValueError, match=why):
            device.load({name: each for name, each in (arrays | change).items() if each is not None}, 70)


@contextmanager
def life(folder: Path, **more: Any) -> Iterator[Streams]:
    """From a start to an orderly end."""
    streams = Streams(on_device(mtp=True), **more)
    streams.spill_to(PrefixDisk(folder, 1 << 30, "tiny"))
    try:
        yield streams
    finally:
        streams.close()


def test_streams_find_on_disk_what_memory_or_an_earlier_life_had(tmp_path: Path) -> None:
    spec = StreamSpec(id="a", tokens=PROMPT, max_tokens=5, draft_tokens=2)
    with life(tmp_path) as streams:
        first = run(streams, spec)
        room = streams.prefixes.used_bytes
    assert first.ended["a"].cached_tokens == 0
    with life(tmp_path, cache_bytes=room) as streams:
        again = run(streams, spec)
        assert (again.ended["a"].cached_tokens, again.log) == (70, first.log)
        run(streams, replace(spec, id="b", tokens=prompt(5, 70)))
        assert streams.prefixes.evictions > 0
        longer = replace(spec, tokens=np.concatenate([PROMPT, prompt(6, 9)]))
        told = run(streams, longer)
        assert told.ended["a"].cached_tokens == 64
        assert streams.prefixes.spill is not None
        assert streams.prefixes.spill.disk.hits == 2
    assert told.log == run(Streams(on_device(mtp=True), cache_bytes=0), longer).log
