"""The gated delta rule a row at a time, for the few rows of a round, with a state that can go back.

`step` reads `front`, leaves the state after all rows in `back` and gives what `replay` needs to make the state after
fewer of them: a row's k, u = beta (v - S^T k) and decay e^g. The operations on the state are the same two in both, in
the same order, so the state after m kept rows is, bit for bit, the one that a `step` over those m rows alone leaves.

Shapes: front, back [Hv, dk, dv] fp32, two different arrays; q, k [R, Hk, dk], v [R, Hv, dv], beta and g [R, Hv];
R is 1 or more. Traffic: a state read and written twice a row, once a row in `replay`.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Written(NamedTuple):
    """What each of R rows did to the state: k [R, Hv, dk, 1], u [R, Hv, 1, dv], decay [R, Hv, 1, 1]."""

    k: Tensor
    u: Tensor
    decay: Tensor


def step(
    front: Tensor, back: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor
) -> tuple[Tensor, Written]:
    """(o [R, Hv, dv], what was written)."""
    R, Hv, dv = v.shape
    ratio = Hv // k.shape[1]
    q, k = (x.repeat_interleave(ratio, dim=1) if ratio > 1 else x for x in (q, k))
    columns, rows, reads = k.unsqueeze(-1).contiguous(), k.unsqueeze(2), q.unsqueeze(2)
    decays, values, betas = decay.view(R, Hv, 1, 1), v.unsqueeze(2), beta.view(R, Hv, 1, 1)
    o, u = v.new_empty(R, Hv, 1, dv), v.new_empty(R, Hv, 1, dv)
    source = front
    for t in range(R):
        torch.mul(source, decays[t], out=back)
        source = back
        torch.mul(values[t] - torch.bmm(rows[t], back), betas[t], out=u[t])
        back.baddbmm_(columns[t], u[t])
        torch.bmm(reads[t], back, out=o[t])
    return o[:, :, 0], Written(columns, u, decays)


def replay(front: Tensor, back: Tensor, written: Written, kept: int) -> None:
    """The state after the first `kept` rows (1 or more), from `front` into `back`."""
    source = front
    for t in range(kept):
        torch.mul(source, written.decay[t], out=back)
        source = back
        back.baddbmm_(written.k[t], written.u[t])
