"""The definition: each sequence after its history, K shifted products."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def causal_conv(
    u: Tensor, weight: Tensor, *, lengths: Sequence[int], parents: Sequence[int], history: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor | None]:
    K = weight.shape[1]
    outputs, tails = [u[:0]], []
    for rows, parent in zip(u.split(list(lengths)), parents, strict=True):
        past = u.new_zeros(K - 1, u.shape[1]) if parent < 0 or history is None else history[parent]
        extended = torch.cat([past, rows])
        total = sum(extended[j : j + len(rows)] * weight[:, j] for j in range(K))
        outputs.append(F.silu(torch.as_tensor(total)))
        tails.append(extended[len(extended) - (K - 1) :])
    return torch.cat(outputs), torch.stack(tails) if keep else None
