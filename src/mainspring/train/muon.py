"""Muon for many small matrices: those of one shape are orthogonalised together.

The maths and the state are those of `torch.optim.Muon`, which takes its matrices one by one, some twenty launches each:
of a network this small that is as much of a step as the host has time for. Updates are always scaled to the size of
AdamW's: a group that asks for another scale is refused.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

SCALE = "match_rms_adamw"


class Muon(torch.optim.Muon):
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        if closure is not None:
            raise ValueError("a step of Muon takes no closure")
        for group in self.param_groups:
            if group["adjust_lr_fn"] != SCALE:
                raise ValueError(f"Muon scales updates as {SCALE} says, not as {group['adjust_lr_fn']}")
            shapes: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    shapes[p.shape].append(p)
            for shape, parameters in shapes.items():
                self._move(parameters, shape, group)

    def _move(self, parameters: list[Tensor], shape: torch.Size, group: dict[str, Any]) -> None:
        for p in parameters:
            if "momentum_buffer" not in self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        gradients = [p.grad for p in parameters if p.grad is not None]
        momenta = [self.state[p]["momentum_buffer"] for p in parameters]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        ahead = torch._foreach_lerp(gradients, momenta, group["momentum"]) if group["nesterov"] else momenta
        updates = orthogonal(torch.stack(list(ahead)), group["ns_coefficients"], group["ns_steps"], group["eps"])
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        scale = 0.2 * max(shape) ** 0.5  # the size of AdamW's updates
        torch._foreach_add_(parameters, list(updates.to(parameters[0].dtype).unbind()), alpha=-group["lr"] * scale)


def orthogonal(matrices: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """[n, rows, columns] -> bf16 of that shape, singular values near 1: the quintic iteration of Jordan 2024."""
    a, b, c = coefficients
    wide = matrices.shape[1] <= matrices.shape[2]
    x = matrices.bfloat16() if wide else matrices.bfloat16().mT
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide else x.mT
