"""Bundles by hash: fetched once from any node that offers one, kept on disk and in memory, handed to clients in pieces.

Size and SHA-256 as offered are checked; at most 64 MiB each and a cap in all, the least used go first. A fetch that
fails moves on to the next node with that hash. What the bytes mean is `text/`'s affair.
"""
