"""CUDA graphs, recorded so that nothing else in the process breaks the recording off."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

_T = TypeVar("_T")
_ONE = threading.Lock()


def recorded(run: Callable[[], _T], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, _T]:
    """(the graph of what `run` launches, what it returns). `pool` is a memory pool that graphs share."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Of this thread's calls: another one may be waiting for a checkpoint on its way to the host.
    with _collector_waits(), torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        result = run()
    return graph, result


@contextmanager
def _collector_waits() -> Iterator[None]:
    """No cyclic garbage is collected meanwhile. A graph given up may be part of such: to destroy it is refused within a
    recording and invalidates the recording. One at a time, so that none switches the collector on for another."""
    with _ONE:
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()
