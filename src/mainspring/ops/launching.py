"""Kernels that come right after one another: the next one's programs take their places while the last one still runs.

Between two kernels of a chain the device waits for the first to end, writes back, and only then starts to place the
second: 2 to 3 us, for 150 to 400 kernels of a step or a small pass. From compute capability 9.0 on a kernel can be
launched *early* (programmatic dependent launch): its programs are placed once those of the kernel before have all ended
or said so, and wait by themselves, in `follow`, until what they read has been written. So a kernel touches nothing that
others write before it has called `follow`, and all kernels of a chain call it: what one waits for includes all before.

Source: CUDA C++ programming guide, "Programmatic Dependent Launch and Synchronization".
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def follow(EARLY: tl.constexpr) -> None:
    """Wait until the kernel before has ended and its results can be read; then let the next one's programs come."""
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()


@triton.jit
def bring_near(pointers: tl.tensor) -> None:
    """Ask for the lines of memory that hold these addresses, into the device's shared cache; waits for nothing."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [pointers], dtype=tl.int32, is_pure=False, pack=1
    )


class Kernel:
    """A compiled function whose launches are early where the device can: `kernel[grid](...)`.

    The function takes `EARLY: tl.constexpr` last and hands it to `follow` before it reads or writes anything.
    """

    def __init__(self, jit: Any) -> None:
        self.jit = jit

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        early = isinstance(self.jit, triton.JITFunction) and can_be_early(torch.cuda.current_device())
        return partial(self.jit[grid], EARLY=early, launch_pdl=early)


def kernel(*, do_not_specialize: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Kernel]:
    def made(function: Callable[..., Any]) -> Kernel:
        return Kernel(triton.jit(function, do_not_specialize=list(do_not_specialize)))

    return made


@cache
def can_be_early(device: int) -> bool:
    """Whether a CUDA device has programmatic dependent launches."""
    return torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (9, 0)
