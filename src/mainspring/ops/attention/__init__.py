"""Causal grouped-query attention over ragged sequences, each continuing the keys and values of a parent.

Row i of sequence n (rows one sequence after another) sees all of `past[parents[n]]` (nothing where parents[n] < 0) and
rows 0..i of its own sequence, no other:  o = softmax(q K^T * D^-1/2) V, softmax in fp32, q-head h uses kv-head
h // (Hq / Hkv).

Shapes: q [T, Hq, D] already rotated, k and v [T, Hkv, D], past a list of (K, V) each [Hkv, n, D]. `select` (sorted row
numbers) asks for those rows only; q then holds just them. Returns o [len(q), Hq, D].

Roofline: 4 Hq D operations a visible pair; the least traffic is q, k, v, o and each parent's K and V once.
"""
