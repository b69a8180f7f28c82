"""Recording a graph: no garbage is collected meanwhile, as a graph destroyed within a recording breaks it off."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mainspring.backend.capture import recorded
from support.kernels import DEVICE


class Recordings:
    """In the place of torch's: how many are open, at most."""

    def __init__(self) -> None:
        self.open = self.most = 0
        self.given: list[dict[str, Any]] = []
        self.set: list[object] = []  # streams put back
        self.waits = 0  # for the device, while a recording was open

    def synchronize(self) -> None:
        self.waits += self.open

    @contextmanager
    def graph(self, _: object, **given: Any) -> Iterator[None]:
        self.synchronize()  # as torch does at first
        self.given.append(given)
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            yield
        finally:
            self.open -= 1


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> Recordings:
    found = Recordings()
    monkeypatch.setattr(torch.cuda, "graph", found.graph)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(torch.cuda, "synchronize", found.synchronize)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "own")
    monkeypatch.setattr(torch.cuda, "set_stream", found.set.append)
    return found


def test_the_collector_waits_and_comes_back(recordings: Recordings) -> None:
    graph, collects = recorded(gc.isenabled, "pool")
    assert isinstance(graph, SimpleNamespace)
    assert not collects
    assert gc.isenabled()
    assert recordings.given == [{"pool": "pool", "capture_error_mode": "thread_local"}]
    assert recordings.set == []


def test_it_comes_back_after_a_fault(recordings: Recordings) -> None:
    def fault() -> None:
        raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        recorded(fault)
    assert gc.isenabled()
    assert recordings.open == 0
    assert recordings.set == ["own"]


def test_one_that_was_off_stays_off(recordings: Recordings) -> None:
    gc.disable()
    try:
        recorded(lambda: None)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_recording_within_one_is_left_to_torch(recordings: Recordings) -> None:
    """It raises there; here it must not wait for itself, nor switch the collector on too soon."""
    _, collects = recorded(lambda: [recorded(gc.isenabled)[1], gc.isenabled()])
    assert collects == [False, False]
    assert gc.isenabled()


def test_threads_record_in_turn(recordings: Recordings) -> None:
    """Else the first to end would switch the collector on in the midst of another's recording."""
    inside, go, seen = threading.Event(), threading.Event(), []

    def slow() -> None:
        inside.set()
        assert go.wait(10)
        seen.append(gc.isenabled())

    first = threading.Thread(target=recorded, args=(slow,))
    first.start()
    assert inside.wait(10)
    second = threading.Thread(target=recorded, args=(lambda: seen.append(gc.isenabled()),))
    second.start()
    second.join(0.2)
    assert seen == []
    go.set()
    first.join(10)
    second.join(10)
    assert seen == [False, False]
    assert recordings.most == 1
    assert recordings.waits == 0  # one thread's wait for the device breaks off what another records
    assert gc.isenabled()


def dropped(kept: list[object]) -> list[list[object]]:
    """Garbage in a cycle, and enough new containers that the collector, where it is on, comes by."""
    kept.clear()
    return [[] for _ in range(100)]


@contextmanager
def eager() -> Iterator[None]:
    """The collector comes by with every few containers."""
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def in_a_cycle(graph: object) -> list[object]:
    cycle: dict[str, object] = {"graph": graph}
    cycle["self"] = cycle
    return [cycle]


def test_a_graph_given_up_within_a_recording_is_destroyed_after_it(recordings: Recordings) -> None:
    class Graph:
        def __del__(self) -> None:
            destroyed.append(recordings.open)

    destroyed: list[int] = []
    kept = in_a_cycle(Graph())
    with eager():
        recorded(lambda: dropped(kept))
        gc.collect()
    assert destroyed == [0]


@pytest.mark.skipif(DEVICE == "cpu", reason="graphs need a GPU")
def test_a_graph_in_a_cycle_does_not_break_off_another() -> None:
    x = torch.zeros(8, device="cuda")
    x.add_(1)
    kept = in_a_cycle(recorded(lambda: x.add_(1))[0])
    with eager():
        other, _ = recorded(lambda: x.add_(len(dropped(kept))))
    was = x.clone()
    other.replay()
    assert torch.equal(x, was + 100)
