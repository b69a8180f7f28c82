"""The router's shell, the client, local nodes, configuration.

    config.py     one frozen tree from TOML and flags: addresses, certificates, classes, limits, local nodes
    serve.py      what `mainspring router` runs: listen, revocation, signals, status
    shell.py      events into `core.router.Router`, its actions onto links; timers
    links.py      one accepted link on this side; the book of all of them, by name
    payloads.py   token arrays from submit to answer, byte-capped; parts of passes cut from them
    answers.py    logits by part and branch, joined into results
    bundles.py    bundles by hash: fetched once from any node, kept on disk, handed to clients
    admission.py  what is refused before the core is asked: bytes, shapes, aliases
    status.py     what `router status` says
    supervise.py  local nodes as children: start, restart with backoff, crash loops, logs
    client.py     `FleetClient`: submit, cancel, stream, fetch bundles, ask status

The shells decide nothing: decisions are the core's, liveness and order the link's.
"""
