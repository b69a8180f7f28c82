"""y = x W^T over rows: x [T, in], weight [out, in], y [T, out]; accumulation in fp32 at least.

Floor: 2 T in out operations, or in * out weights read once where T is small.
"""
