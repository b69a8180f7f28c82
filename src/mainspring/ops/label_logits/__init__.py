"""The final norm and the head's rows of a few labels: the rest of the vocabulary is never touched.

    logit_i = sum_j rms(h)[rows_i, j] * head[ids_i, j],   rms as in `rms_norm`, all of it in fp32

h [B, d], head [vocab, d], rows and ids [L] -> [L] fp32. A pair's value depends on no other pair.

Floor: a row of h and one of the head a label: 2 d values.
"""
