"""Short causal depthwise convolution with SiLU over ragged sequences, and its three-row memory.

    y_t = silu(sum_j W[:, j] u_{t - (K-1) + j}),  j = 0 .. K-1,  no bias

u [T, Ch] rows of N sequences one after another, W [Ch, K]. Sequence n reads the K-1 rows before its first one from
`history[parents[n]]` [K-1, Ch] (zeros where parents[n] < 0). Returns y [T, Ch] and, with keep=True, the last K-1 rows
each sequence has seen [N, K-1, Ch] (pre-convolution; a sequence shorter than K-1 keeps the end of its history).

Floor: 2 T Ch values moved.
"""
