"""Measured constants on disk, keyed by weights, device and build: a node that starts again joins at once.

One small JSON file a key, written whole or not at all; a damaged or foreign one is ignored and said so.
"""
