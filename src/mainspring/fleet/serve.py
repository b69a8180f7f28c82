"""What `mainspring router` runs: transports, the shell, supervised nodes, certificate watch, signals.

Listens on QUIC and TCP with the same port; looks every 20 s at the revocation list and at the expiry of every open
link's certificate against the wall clock; SIGTERM drains within `--drain-timeout`. Owns the process and its clocks.
"""
