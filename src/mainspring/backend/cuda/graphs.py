"""Runs one forward: small passes as recorded graphs, one a bucket of shapes, others launch by launch.

Three hundred launches took the host 14 ms where it was quiet and 25 beside other work; a small pass takes the device
one, and one of 7,000 rows 18. A graph has its own tables, scratch and answer at fixed addresses; copies up and down are
part of it. Graphs share one memory pool, so their activations lie on each other. At most `MOST_GRAPHS` are kept, the
least used goes. To record one costs what two passes by launches cost: from `AT_ONCE_ROWS` on that is done when a bucket
comes the second time, since one that never comes again would only wait for it.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mainspring.backend.capture import recorded
from mainspring.backend.cuda.buckets import bucketed
from mainspring.backend.cuda.job import NONE, Job, Scratch, exact, write
from mainspring.backend.cuda.layout import Shape, buffer_bytes, host_tables
from mainspring.backend.cuda.network import Network, Tables
from mainspring.backend.protocol import FloatArray

GRAPH_ROWS = 10_240
AT_ONCE_ROWS = 4_096
MOST_GRAPHS = 64
MOST_SEEN = 256
MOST_VIEWS = 64  # of a graph: a scratch state each


class Buffers:
    """Host and device side of one shape: tables, scratch for forgotten views, the answer."""

    def __init__(self, network: Network, shape: Shape) -> None:
        c, weights = network.config, network.embed
        pinned = weights.is_cuda
        size = buffer_bytes(shape)
        self.shape = shape
        self.host = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        self.host_bytes = self.host.numpy()
        self.host_tables = host_tables(self.host_bytes, shape)
        self.device = torch.empty(size, dtype=torch.uint8, device=weights.device)
        self.tables = Tables(self.device, shape)
        self.kv = weights.new_empty(max(shape.view_rows, 1), 2, c.num_key_value_heads, c.head_dim)
        heads = (c.linear_num_value_heads, c.linear_key_head_dim, c.linear_value_head_dim)
        self.recurrent = weights.new_empty(max(shape.views, 1), *heads, dtype=torch.float32)
        self.answer = torch.empty(shape.labels, dtype=torch.float32, pin_memory=pinned)
        self.host_answer: FloatArray = self.answer.numpy()
        element = self.kv.element_size()
        self.scratch = Scratch(
            self.kv.data_ptr(), self.kv.stride(0) * element, self.recurrent.data_ptr(), self.recurrent.stride(0) * 4
        )
        self.network = network

    def upload(self, job: Job) -> None:
        self.fill(job)
        self.send()

    def download(self, logits: Tensor, count: int) -> FloatArray:
        self.fetch(logits)
        return self.answered(count)

    def fill(self, job: Job) -> None:
        """The host's tables."""
        write(self.host_bytes, self.host_tables, job, self.shape, self.scratch)

    def send(self) -> None:
        self.device.copy_(self.host, non_blocking=True)

    def fetch(self, logits: Tensor) -> None:
        self.answer.copy_(logits, non_blocking=True)

    def answered(self, count: int) -> FloatArray:
        """Waits for the device: the one sync of a pass."""
        if self.device.is_cuda:
            torch.cuda.current_stream().synchronize()
        return self.host_answer[:count].copy()


@dataclass
class Recorded:
    """`result` is what the graph's last replay left."""

    buffers: Buffers
    graph: Any
    result: Tensor


class Runner:
    def __init__(self, network: Network, *, graph_rows: int = GRAPH_ROWS) -> None:
        """`graph_rows` 0 launches every pass."""
        self.network = network
        self.graph_rows = graph_rows if network.embed.is_cuda else 0
        self._seen: OrderedDict[Shape, None] = OrderedDict()
        self._recorded: OrderedDict[Shape, Recorded] = OrderedDict()
        self._pool: Any = None

    def run(self, job: Job) -> FloatArray:
        """Label logits; when it returns, states are moved and the device is idle."""
        shape = exact(job, self.network.grid(job))
        if not shape.rows:
            return np.zeros(0, np.float32)
        if shape.rows <= self.graph_rows and shape.views <= MOST_VIEWS:
            bucket = bucketed(shape)
            if shape.rows <= AT_ONCE_ROWS or self._comes_again(bucket):
                return self._replay(job, bucket)
        return self.launch(job, shape)

    def _comes_again(self, shape: Shape) -> bool:
        """Whether it did before, among the last MOST_SEEN buckets."""
        again = shape in self._recorded or shape in self._seen
        self._seen[shape] = None
        self._seen.move_to_end(shape)
        if len(self._seen) > MOST_SEEN:
            self._seen.popitem(last=False)
        return again

    def launch(self, job: Job, shape: Shape) -> FloatArray:
        """Without a graph, on tables of `shape`, at least the exact one."""
        buffers = Buffers(self.network, shape)
        buffers.upload(job)
        return buffers.download(self.network.forward(buffers.tables, shape), len(job.label_ids))

    def _replay(self, job: Job, shape: Shape) -> FloatArray:
        found = self._recorded.get(shape)
        if found is None:
            while len(self._recorded) >= MOST_GRAPHS:
                self._recorded.popitem(last=False)
            found = self._recorded[shape] = self._record(shape)
        self._recorded.move_to_end(shape)
        found.buffers.fill(job)
        found.graph.replay()
        return found.buffers.answered(len(job.label_ids))

    def _record(self, shape: Shape) -> Recorded:
        buffers = Buffers(self.network, shape)

        def forward() -> Tensor:
            logits = self.network.forward(buffers.tables, shape)
            buffers.fetch(logits)
            return logits

        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        return record(buffers, forward, self._pool)


def record(buffers: Buffers, forward: Callable[[], Tensor], pool: Any) -> Recorded:
    """Tables up, then `forward`. Kernels are compiled by a run on padding alone, which moves no state."""
    buffers.upload(Job([], [], NONE, NONE, NONE, NONE, NONE))
    forward()

    def sent() -> Tensor:
        buffers.send()
        return forward()

    return Recorded(buffers, *recorded(sent, pool))
