"""silu(gate) * up of the two halves of a row: x [T, 2 F] -> [T, F], in fp32 inside.

Floor: 3 F values moved a row.
"""
