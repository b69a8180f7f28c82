"""Forwards over pieces of prompts: short ones as recorded graphs, one a bucket of shapes, long ones launch by launch.

Four hundred launches take a host some 15 ms, whatever a piece's rows; the last few tokens of a prompt, or a short turn
on top of a kept one, take the device one or two. Addresses of states are in the tables, so a graph serves every slot.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mainspring.backend.cuda.buckets import bucketed
from mainspring.backend.cuda.graphs import Buffers, Recorded, record
from mainspring.backend.cuda.job import Job, exact
from mainspring.backend.cuda.layout import Shape
from mainspring.backend.cuda.network import Network, Tables

RECORDED_ROWS = 1_024
MOST_RECORDED = 32

Forward = Callable[[Tables, Shape], Tensor]


class Pieces:
    def __init__(self, network: Network, forward: Forward) -> None:
        """`forward` gives hidden rows [rows of the shape, d]."""
        self._network, self._forward = network, forward
        self._rows = RECORDED_ROWS if network.embed.is_cuda else 0
        self._recorded: OrderedDict[Shape, tuple[Recorded, Any]] = OrderedDict()  # and an event after its last replay
        self._pool: Any = None

    def run(self, job: Job) -> Tensor:
        """Hidden rows [T, d] of the job's one view; its state is moved, its length is the caller's to raise. Waits for
        the device only where the piece before had the same tables."""
        # Views whole in the delta rule, so that nothing depends on where a prompt is cut.
        shape = exact(job, self._network.grid(job))._replace(segments=0)
        if shape.rows > self._rows:
            buffers = Buffers(self._network, shape)
            buffers.upload(job)
            return self._forward(buffers.tables, shape)
        recorded, replayed = self._of(bucketed(shape))
        replayed.synchronize()
        recorded.buffers.fill(job)
        recorded.graph.replay()
        replayed.record()
        return recorded.result[: shape.rows].clone()

    def _of(self, shape: Shape) -> tuple[Recorded, Any]:
        if shape not in self._recorded:
            while len(self._recorded) >= MOST_RECORDED:
                _, (_, replayed) = self._recorded.popitem(last=False)
                replayed.synchronize()  # its tables may be on their way up, from memory that is another's then
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
            buffers = Buffers(self._network, shape)
            made = record(buffers, lambda: self._forward(buffers.tables, shape), self._pool)
            self._recorded[shape] = made, torch.cuda.Event()
        self._recorded.move_to_end(shape)
        return self._recorded[shape]
