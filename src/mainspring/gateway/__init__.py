"""HTTP in front of a fleet: scoring routes, keys, limits, metrics, the dashboard. No weights, no torch, no decisions.

docs/decisions/0017-gateway.md has a line a file and the interfaces between them.
"""
