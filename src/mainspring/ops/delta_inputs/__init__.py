"""From the input projection of a gated-delta layer to what its recurrence reads, in one pass over the rows.

A projected row is [q Hk d | k Hk d | v Hv d | z Hv d | b Hv | a Hv]. Its first (2 Hk + Hv) d channels go through the
causal convolution with SiLU (`causal_conv`), then q and k are L2-normalised a head (eps 1e-6, in fp32), q scaled by
d^-1/2; beta = sigmoid(b), g = -exp(A_log) softplus(a + dt_bias).

Shapes: projected [T, 2 Hk d + 2 Hv d + 2 Hv], weight [Ch, K], A_log and dt_bias [Hv]. Returns q, k [T, Hk, d] and v
[T, Hv, d] in the projection's type (fp16 from bf16, where a device computes with them), beta and g [T, Hv] fp32, and
with keep=True the sequences' last K-1 rows before the convolution [N, K-1, Ch].

Floor: (2 Hk + Hv) d values read and written a row, once: 24.6 KB at 16/16 heads of 128 in bf16.
"""

from typing import NamedTuple


class Heads(NamedTuple):
    """k-heads, v-heads and the size of each."""

    keys: int
    values: int
    size: int

    @property
    def channels(self) -> int:
        return (2 * self.keys + self.values) * self.size
