"""Launches rounds: as recorded graphs, one a shape, where there is a device; else as they come.

A graph has its own request, masks, outcome; a launch is one copy up, one graph, one copy down to pinned memory and an
event. Buffers on the host take turns: at most LAUNCHES rounds are under way, and an outcome that nobody came for by
then is moved aside. Graphs share one pool of memory; at most MOST_GRAPHS are kept, the least used goes.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mainspring.backend.capture import recorded
from mainspring.backend.cuda_slots.rounds import Choice, Given, Made, Rounds, Shape, blank

MOST_GRAPHS = 64
LAUNCHES = 4


@dataclass(eq=False)
class Launched:
    """A round under way: `wait` for it, then the outcome is there."""

    outcome: Tensor
    logits: Tensor
    event: Any = None

    def wait(self) -> Tensor:
        """[N, OUTCOME + R] on the host: the one sync of a round."""
        if self.event is not None:
            self.event.synchronize()
            self.event = None  # it is over: whoever takes its place later need not ask again
        return self.outcome

    def move_aside(self) -> None:
        """Its place on the host is another round's from now on."""
        self.outcome = self.wait().clone()


class Entry:
    """One shape's place on host and device."""

    def __init__(self, lanes: int, rows: int, choice: Choice, vocab: int, nobody: int, device: torch.device) -> None:
        pinned = device.type == "cuda"
        self._turn = 0
        request = blank(lanes, rows, nobody)
        self._hosts = [request.pin_memory() if pinned else request.clone() for _ in range(LAUNCHES)]
        self._blank = request
        masks = masked = None
        if choice.masked:
            masks = torch.zeros(lanes * rows, -(-vocab // 32), dtype=torch.int32, device=device)
            masked = torch.zeros(lanes, dtype=torch.bool, device=device)
        self.given = Given(request.to(device), masks, masked)
        self.graph: Any = None
        self.made: Made | None = None

    def upload(self, request: Tensor, masks: dict[int, NDArray[np.uint32]]) -> None:
        """`masks` [rows, words] by lane: rows beyond are as they were, nothing is asked of them."""
        host = self._hosts[self._turn]
        self._turn = (self._turn + 1) % LAUNCHES
        host.copy_(self._blank)
        host[: len(request), : request.shape[1]] = request
        self.given.request.copy_(host, non_blocking=True)
        if self.given.masks is None or self.given.masked is None:
            return
        rows = len(self.given.masks) // len(host)
        self.given.masked.copy_(torch.tensor([lane in masks for lane in range(len(host))]))
        for lane, words in masks.items():
            bits = torch.from_numpy(np.ascontiguousarray(words).view(np.int32))
            self.given.masks[lane * rows : lane * rows + len(bits)].copy_(bits)


class Runner:
    def __init__(self, rounds: Rounds, *, vocab: int, nobody: int, device: torch.device) -> None:
        self._rounds, self._vocab, self._nobody, self._device = rounds, vocab, nobody, device
        self._entries: OrderedDict[Shape, Entry] = OrderedDict()
        self._pool: Any = None
        self._copies = [torch.zeros(0, dtype=torch.int32)] * LAUNCHES
        self._launched: list[Launched | None] = [None] * LAUNCHES
        self._turn = 0

    def launch(self, request: Tensor, shape: Shape, masks: dict[int, NDArray[np.uint32]]) -> Launched:
        """A round of `request` [n, REQUEST + r] int32, at most the shape's lanes and rows."""
        self._make_way()
        entry = self._entries.get(shape)
        if entry is None:
            if len(self._entries) >= MOST_GRAPHS:
                if self._device.type == "cuda":
                    torch.cuda.current_stream().synchronize()  # it may be under way
                self._entries.popitem(last=False)
            entry = self._entry(shape.lanes, shape.rows, shape.choice)
            if self._device.type == "cuda":
                self._record(entry, lambda: self._rounds.forward(entry.given, shape))
            self._entries[shape] = entry
        self._entries.move_to_end(shape)
        entry.upload(request, masks)
        if entry.graph is None or entry.made is None:
            return self._down(self._rounds.forward(entry.given, shape))
        entry.graph.replay()
        return self._down(entry.made)

    def first(self, request: Tensor, choice: Choice, masks: dict[int, NDArray[np.uint32]]) -> Launched:
        """First tokens; once a stream, so nothing is recorded."""
        self._make_way()
        entry = self._entry(len(request), 1, choice)
        entry.upload(request, masks)
        return self._down(self._rounds.first(entry.given, choice))

    def _entry(self, lanes: int, rows: int, choice: Choice) -> Entry:
        return Entry(lanes, rows, choice, self._vocab, self._nobody, self._device)

    def _record(self, entry: Entry, run: Callable[[], Made]) -> None:
        """Kernels are compiled by a run of lanes that do nothing; then the same is recorded."""
        run()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        entry.graph, entry.made = recorded(run, self._pool)

    def _make_way(self) -> None:
        """The next round takes the places that the one LAUNCHES before it has on the host, for its request too."""
        before = self._launched[self._turn]
        if before is not None:
            before.move_aside()
            self._launched[self._turn] = None

    def _down(self, made: Made) -> Launched:
        on_gpu = self._device.type == "cuda"
        host = self._copies[self._turn]
        if host.numel() < made.outcome.numel():
            host = torch.empty(made.outcome.numel(), dtype=torch.int32, pin_memory=on_gpu)
            self._copies[self._turn] = host
        outcome = host[: made.outcome.numel()].view(made.outcome.shape)
        outcome.copy_(made.outcome, non_blocking=on_gpu)
        event = torch.cuda.Event() if on_gpu else None
        if event is not None:
            event.record()
        launched = self._launched[self._turn] = Launched(outcome, made.logits, event)
        self._turn = (self._turn + 1) % LAUNCHES
        return launched
