"""What `mainspring node --join HOST:PORT` runs: engine, probe, membership, signals.

Opens the bundle and the engine, has itself probed, then keeps one link alive through `redial`. SIGTERM drains: no
new pass is taken, held ones run, `Goodbye`, exit 0. Owns the process: logging, exit codes, the wall clock for
certificates.
"""
