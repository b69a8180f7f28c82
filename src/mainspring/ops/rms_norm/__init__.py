"""Root-mean-square norms a row or a head, with what stands beside them in a block.

    add_rms_norm(h, y, w):    h + y, and (h + y) * rsqrt(mean (h + y)^2 + eps) * (1 + w);  y None: h alone
    gated_rms_norm(o, z, w):  o * rsqrt(mean o^2 + eps) * w * silu(z), a head of o [T, Hv, dv] at a time

h, y [T, d]; z [T, Hv dv] with any row stride. Sums in fp32, outputs in the input's type; the norm is of the sum as
rounded to that type, which is what the next layer adds to.

Floor: 4 d values moved a row (2 d without y); 3 Hv dv values.
"""
