"""CUDA graphs, recorded so that nothing else in the process breaks the recording off."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

_T = TypeVar("_T")
_ONE = threading.RLock()


def recorded(run: Callable[[], _T], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, _T]:
    """(the graph of what `run` launches, what it returns). `pool` is a memory pool that graphs share.

    One recording at a time, which begins by waiting for the device: that would break off another thread's.
    """
    with _alone():
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            # Of this thread's calls: another one may be waiting for a checkpoint on its way to the host.
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                result = run()
        except BaseException:
            torch.cuda.set_stream(stream)  # a recording that can't be ended leaves its own in place
            raise
    return graph, result


@contextmanager
def _alone() -> Iterator[None]:
    """One thread, and no cyclic garbage collected meanwhile: a graph given up may be part of such, and to destroy it is
    refused within a recording and invalidates the recording."""
    with _ONE:
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()
