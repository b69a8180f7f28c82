"""What is refused before the core is asked, and how a `Submit` becomes a `core.Request`.

Aliases to model keys, default class, allowed numerics, shapes counted from byte lengths, ids made unique by a short
prefix of the client; a draining router. Errors become `Refused` by one table from `MainspringError`.
"""
