"""The arithmetic: one package an operation, its shapes, maths and roofline in `__init__`, one file an implementation.

`reference` is the definition in the plainest torch and the oracle of every test; the others (`chunked`, `onednn`, later
`triton` and `mlx`) have the same signature. Importing an operation's package imports none of its implementations.
"""
