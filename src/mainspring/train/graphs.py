"""A step's losses and gradients recorded once a shape and replayed: thousands of launches become one.

Half of a small network's step is the host launching kernels. The first step of a shape runs as written, the second is
recorded (CUDA graph), the others replay what was recorded. Gradients lie in one place for all; all graphs share one
pool of memory, which is safe because each is done with before the next begins.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mainspring.backend.capture import recorded

LIMIT = 160  # graphs kept; further shapes run as written


class Replayed:
    """`losses(tensors)` gives what to report [n] and the loss to differentiate; `__call__` leaves gradients behind."""

    def __init__(
        self, losses: Callable[[Sequence[Tensor]], tuple[Tensor, Tensor]], parameters: Sequence[Tensor], *, record: bool
    ) -> None:
        self.losses, self.parameters, self.record = losses, parameters, record
        self.seen: set[Any] = set()
        self.graphs: dict[Any, tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]] = {}
        self.pool: Any = None
        for p in parameters:
            p.grad = torch.zeros_like(p)

    def __call__(self, tensors: Sequence[Tensor]) -> Tensor:
        """`tensors` may lie in pinned host memory. Returns what to report."""
        device = self.parameters[0].device
        shape = tuple(tuple(t.shape) for t in tensors)
        if not self.record or (shape not in self.seen and shape not in self.graphs) or self._full(shape):
            self.seen.add(shape)
            return self._run([t.to(device, non_blocking=True) for t in tensors])
        if shape not in self.graphs:
            self.graphs[shape] = self._recorded([t.to(device) for t in tensors])
        graph, places, report = self.graphs[shape]
        for place, tensor in zip(places, tensors, strict=True):
            place.copy_(tensor, non_blocking=True)
        graph.replay()
        return report.clone()

    def _full(self, shape: Any) -> bool:
        return shape not in self.graphs and len(self.graphs) >= LIMIT

    def _run(self, tensors: Sequence[Tensor]) -> Tensor:
        torch._foreach_zero_([p.grad for p in self.parameters if p.grad is not None])
        report, loss = self.losses(tensors)
        loss.backward()
        return report.detach()

    def _recorded(self, places: list[Tensor]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]:
        graph, report = recorded(lambda: self._run(places), self.pool)
        self.pool = self.pool or graph.pool()
        return graph, places, report
