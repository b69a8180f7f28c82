"""Logits of parts by (pass id, index) until the core says `Answer`, then joined in branch order; checks lengths, NaN.

Also what a result says about its way: queueing, device time, nodes, retries, cached tokens.
"""
