"""The gated delta rule over ragged sequences (Yang, Kautz, Hatamizadeh 2024, "Gated Delta Networks").

A sequence n owns rows offsets[n]:offsets[n+1]; it starts from state `initial[parents[n]]` (zero where parents[n] < 0;
a list of states or one array of them) and sees no other sequence. A v-head h has state S [dk, dv] and, with k-head
h // r (r = Hv / Hk),

    S <- exp(g_t) S;   delta = beta_t (v_t - S^T k_t);   S <- S + k_t delta^T;   o_t = S^T q_t

Shapes: q, k [T, Hk, dk] (already L2-normalised a head, q scaled by dk^-1/2), v [T, Hv, dv], beta and g [T, Hv] with
0 < beta < 1 and g <= 0, all fp32. Returns o [T, Hv, dv] and, with keep=True, the final states [N, Hv, dk, dv].
A row with k = 0, beta = 0, g = 0 is an exact no-op on the state: that is how padding is done.

Roofline a row and v-head: 4 dk dv multiply-adds token by token; chunked by C: about C (2 dk + 2 dv) + 3 dk dv.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

Array = TypeVar("Array")

CHUNK_ROWS = 64


class GatedDelta(Protocol[Array]):
    """The signature every implementation has."""

    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        beta: Array,
        g: Array,
        *,
        lengths: Sequence[int],
        parents: Sequence[int],
        initial: Sequence[Array] | Array | None,
        keep: bool,
    ) -> tuple[Array, Array | None]: ...
