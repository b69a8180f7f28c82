"""The resolved configuration: one frozen tree, read once from a TOML file and flags, validated whole, printed at start.

Sections `[router]`, `[tls]`, `[[class]]`, `[limits]`, `[[node]]` (local nodes to supervise), `[models]` (aliases,
allowed numerics). Errors name file, section and key. Nothing reads the environment later.
"""
