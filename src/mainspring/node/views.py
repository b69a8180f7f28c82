"""Views by key between passes: kept ones (the engine's store) and half-scanned ones of a shard.

Every key a waiting pass builds on is pinned from receipt to use; a key that is not there at receipt, and that no
earlier waiting pass will leave, is `view_missing` at once. Notes what was gained and dropped since the last report.
Half-scanned views go with `Release`, with their last chunk, or after a minute without one.
"""
