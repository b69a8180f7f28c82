"""The router's shell, the client, local nodes, configuration.

    config.py     one frozen tree from TOML and flags: addresses, certificates, classes, limits, local nodes
    serve.py      what `mainspring router` runs: ports, signals, local nodes
    settings.py   what of it the shell has to know
    driver.py     between the shell and transports: callbacks, one timer
    shell.py      link events into `core.router.Router`, its actions onto links; no sockets, no clock
    links.py      one accepted link; the book of all of them, by name; what counts as a crash
    nodes.py      what comes from nodes: to `offers` or `work`
    offers.py     what nodes offer and report: checked, told to the core, or declined
    work.py       passes and leases on nodes: cut and sent, their outcomes checked
    clients.py    what comes from clients: requests, cancels, bundles, status; their one answer
    admission.py  what is refused before the core is asked: shapes, aliases, numerics
    payloads.py   token arrays from submit to answer, byte-capped; parts of passes cut from them
    answers.py    logits by part, joined into results
    scope.py      keys of views and prefixes, set apart by realm
    bundles.py    bundles by hash: checked, kept, handed on
    bundle_check.py  whether bytes are the bundle they go by, in a process of their own
    fetches.py    how the router comes by a bundle: from disk, from one node after the other
    offloop.py    what blocks, off the loop
    budget.py     bytes that all links together may hold
    status.py     what `router status` says
    tally.py      what happened in the last minute
    supervise.py  local nodes as children: start, restart with backoff, crash loops, logs
    client.py     `FleetClient`: submit, cancel, stream, fetch bundles, ask status
    client_link.py  its link
    errors.py     refusals beside the core's, and their HTTP statuses
    clock.py      the clock that goes on while the machine sleeps

The shells decide nothing: decisions are the core's, liveness and order the link's.
"""
