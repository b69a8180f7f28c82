"""Forwards over pieces of prompts: short ones as recorded graphs, one a bucket of shapes, long ones launch by launch.

Four hundred launches take a host some 15 ms, whatever a piece's rows; the last few tokens of a prompt, or a short turn
on top of a kept one, take the device one or two. Addresses of states are in the tables, so a graph serves every slot.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mainspring.backend.cuda.buckets import bucketed
from mainspring.backend.cuda.graphs import Buffers
from mainspring.backend.cuda.layout import NONE, Job, Shape, exact
from mainspring.backend.cuda.network import Network, Tables

RECORDED_ROWS = 1_024
MOST_RECORDED = 32

Forward = Callable[[Tables, Shape], Tensor]


@dataclass
class Recorded:
    buffers: Buffers
    graph: Any
    hidden: Tensor
    sent: Any  # an event: the tables were read by the device


class Pieces:
    def __init__(self, network: Network, forward: Forward) -> None:
        """`forward` gives hidden rows [rows of the shape, d]."""
        self._network, self._forward = network, forward
        self._recorded: OrderedDict[Shape, Recorded] = OrderedDict()
        self._pool: Any = None

    def run(self, job: Job) -> Tensor:
        """Hidden rows [T, d] of the job's one view; its state is moved, its length is the caller's to raise. Nothing
        waits for the device but tables that an earlier piece still needs."""
        # Views whole in the delta rule, so that nothing depends on where a prompt is cut.
        shape = exact(job, self._network.grid(job))._replace(segments=0)
        if not self._network.embed.is_cuda or shape.rows > RECORDED_ROWS:
            buffers = Buffers(self._network, shape)
            buffers.upload(job)
            return self._forward(buffers.tables, shape)
        bucket = bucketed(shape)
        recorded = self._recorded.get(bucket) or self._record(bucket)
        self._recorded.move_to_end(bucket)
        recorded.sent.synchronize()
        recorded.buffers.upload(job)
        recorded.sent.record()
        recorded.graph.replay()
        return recorded.hidden[: shape.rows].clone()

    def _record(self, shape: Shape) -> Recorded:
        """Kernels are compiled by a run on padding alone, which moves no state; then the same is recorded."""
        while len(self._recorded) >= MOST_RECORDED:
            self._recorded.popitem(last=False)
        buffers = Buffers(self._network, shape)
        buffers.upload(Job([], [], NONE, NONE, NONE, NONE, NONE))
        self._forward(buffers.tables, shape)
        torch.cuda.current_stream().synchronize()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            hidden = self._forward(buffers.tables, shape)
        self._recorded[shape] = Recorded(buffers, graph, hidden, torch.cuda.Event())
        return self._recorded[shape]
