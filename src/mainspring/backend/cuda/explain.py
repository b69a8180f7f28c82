"""Which device, number type and kernels would be used, and why not where they can't.

Asked before anything is loaded, and by whoever explains this machine to people.
"""

from dataclasses import dataclass

import torch

from mainspring.errors import DeviceError
from mainspring.model.config import HybridConfig

CAPABILITY = (8, 0)
"""bf16 on tensor cores begins there."""
HEAD_DIMS = (64, 128, 256)
LINEAR_HEAD_DIMS = (64, 128)


@dataclass(frozen=True)
class Description:
    """`lines` for people; `problem` says why the device can't be used, None where it can."""

    name: str
    lines: tuple[str, ...]
    problem: str | None

    def require(self) -> str:
        """torch's name of the device. DeviceError with the problem."""
        if self.problem is not None:
            raise DeviceError(self.problem)
        return "cuda"


def describe() -> Description:
    """Of the current CUDA device."""
    if not torch.cuda.is_available():
        built = torch.version.cuda
        why = "torch was built without CUDA" if built is None else f"torch (CUDA {built}) finds no device"
        return Description("cuda", (f"device: none, {why}",), f"no CUDA device: {why}")
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    capability = (properties.major, properties.minor)
    free, total = torch.cuda.mem_get_info()
    lines = [
        f"device: {properties.name}, compute capability {capability[0]}.{capability[1]}, "
        f"{properties.multi_processor_count} multiprocessors, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free",
        f"torch {torch.__version__}, CUDA {torch.version.cuda}",
    ]
    problem = None
    if capability < CAPABILITY:
        problem = f"{properties.name} has compute capability {capability[0]}.{capability[1]}; 8.0 or newer is needed"
    try:
        import triton

        lines.append(f"kernels: triton {triton.__version__}; matrix products: cuBLAS")
    except ImportError:
        problem = "the triton package is missing; torch's CUDA wheels for Linux bring it"
    numbers = "numbers: bf16 weights and activations, fp16 inside the delta rule, fp32 norms, gates, states and sums"
    lines.append(problem or numbers)
    return Description(properties.name, tuple(lines), problem)


def check(config: HybridConfig) -> None:
    """DeviceError where the kernels have no form for these shapes."""
    c = config
    if c.head_dim not in HEAD_DIMS:
        raise DeviceError(f"head_dim {c.head_dim} has no CUDA kernel; known: {HEAD_DIMS}")
    if c.linear_key_head_dim != c.linear_value_head_dim or c.linear_key_head_dim not in LINEAR_HEAD_DIMS:
        raise DeviceError(
            f"linear head sizes {c.linear_key_head_dim} and {c.linear_value_head_dim} have no CUDA kernel; "
            f"known: equal ones of {LINEAR_HEAD_DIMS}"
        )
