"""One library convolution over all rows at once, then the first K-1 rows of each sequence again with their own past.

`conv2d` on [1, Ch, T, 1] in channels-last strides is a view of [T, Ch] rows: no copy, and oneDNN's depthwise kernel
reads each row once (0.9 ms against 4.8 ms for shifted products at 2,000 x 1,536 on two cores).
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def causal_conv(
    u: Tensor, weight: Tensor, *, lengths: Sequence[int], parents: Sequence[int], history: Tensor | None, keep: bool
) -> tuple[Tensor, Tensor | None]:
    T, Ch = u.shape
    K = weight.shape[1]
    image = u.view(1, T, 1, Ch).permute(0, 3, 1, 2)
    y = F.conv2d(image, weight.view(Ch, 1, K, 1), padding=(K - 1, 0), groups=Ch)[0, :, :T, 0].t()
    L = torch.tensor(list(lengths), device=u.device)
    starts = L.cumsum(0) - L
    past = _histories(u, K, parents, history)  # [N, K-1, Ch]
    head = starts[:, None] + torch.arange(K - 1, device=u.device)
    inside = torch.arange(K - 1, device=u.device)[None] < L[:, None]
    first = u[head.clamp(max=T - 1)] * inside[..., None]  # rows past a short sequence's end: zero, dropped below
    window = torch.cat([past, first], dim=1)  # [N, 2(K-1), Ch]
    fixed = sum(window[:, j : j + K - 1] * weight[:, j] for j in range(K))
    y.index_put_((head[inside],), torch.as_tensor(fixed)[inside])
    return F.silu(y, inplace=True), _tails(u, K, L, starts, past) if keep else None


def _histories(u: Tensor, K: int, parents: Sequence[int], history: Tensor | None) -> Tensor:
    if history is None:
        return u.new_zeros(len(parents), K - 1, u.shape[1])
    P = torch.tensor(list(parents), device=u.device)
    return history[P.clamp(min=0)] * (P >= 0)[:, None, None]


def _tails(u: Tensor, K: int, L: Tensor, starts: Tensor, past: Tensor) -> Tensor:
    """Row j of the tail is input row L - (K-1) + j, taken from the history where that is negative."""
    wanted = L[:, None] - (K - 1) + torch.arange(K - 1, device=u.device)
    from_rows = u[(starts[:, None] + wanted).clamp(0, len(u) - 1)]
    from_past = past.gather(1, (wanted + K - 1).clamp(0, K - 2)[..., None].expand(-1, -1, u.shape[1]))
    return torch.where((wanted >= 0)[..., None], from_rows, from_past)
