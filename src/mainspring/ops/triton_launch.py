"""Launches that overlap the end of the kernel before (programmatic dependent launch, compute capability 9.0).

A kernel's programs may be placed while the one before still drains; `after_previous`, the first thing each kernel does,
waits until that one is complete and its memory visible. Of three hundred kernels a pass it takes the launch out of the
gaps. Elsewhere, and in the interpreter, launches are plain ones.
"""

import os

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

CAPABILITY = (9, 0)


def _overlaps() -> bool:
    if os.environ.get("TRITON_INTERPRET") == "1" or not torch.cuda.is_available():
        return False
    return torch.cuda.get_device_capability() >= CAPABILITY


OVERLAPS = tl.constexpr(_overlaps())
OPTIONS: dict[str, bool] = {"launch_pdl": True} if OVERLAPS.value else {}
"""Of every launch of a kernel that calls `after_previous`."""


@triton.jit
def after_previous():
    if OVERLAPS:
        gdc_wait()
