"""A node: one model on one device, dialling out to its router.

    launch.py     what `mainspring node` runs: open the engine, probe, join, serve until told to stop
    membership.py one link's life on this side: hello, offer, reports, work in, answers out
    runner.py     the one place that touches the engine: the agenda's next step, in a worker thread
    translate.py  wire records <-> what the engine and the agenda understand
    views.py      half-scanned and kept views by key: pins from receipt to use, what was gained and dropped
    probe.py      cost constants: a first answer in 5 s, refined in idle time
    constants.py  measured constants kept on disk by weights, device and build
    redial.py     when to dial again: backoff with jitter, the other transport, never two links at once
    clock.py      the clock that goes on while the machine sleeps

The shells decide nothing: decisions are the core's, liveness and order the link's.
"""
