"""From an attention layer's projection to queries, keys and values: norm a head, partial rotary positions, one pass.

A projected row is [(q D | gate D) a q-head | k G D | v G D]; either part may stand alone. q and k get
x * rsqrt(mean x^2 + eps) * (1 + w) over D in fp32, then rotate-half on their first R dims (R = 2 * cos.shape[1]).

Shapes: queries [Q, Hq, 2 D] (a view of the projection), keys and values [T, G, D], cos and sin fp32 of those rows.
`queries(x, weight, cos, sin, eps)` returns [Q, Hq, D]; `keys_values(k, v, weight, cos, sin, eps)` returns [T, 2, G, D],
a row's key beside its value: how states keep them.

Floor: each value read and written once; the gate stays where it is, `attention` reads it there.
"""
