"""A node: one model on one device, dialling out to its router.

decisions, given times and messages
    scheduler.py  messages and times in, messages and jobs out; drives `core.agenda`
    jobs.py       a pass from receipt to its answer
    dependants.py parts that share a view fail together
    verdict.py    what a pass that was run came to, part by part
    leases.py     streams of one link, from `OpenLease` to their one `LeaseEnded`
    rounds.py     what rounds and prompts came to
    roundfit.py   what a round costs, learnt from every one
    prefixkeys.py checkpoints of prompts by the router's keys
    views.py      half-scanned and kept views by key: holds from receipt to use, what was gained and dropped
    probe.py      cost constants: a first answer in 5 s, refined in idle time
    health.py     whether work ends well, and since when none has
    reports.py    when to report and what
    departure.py  when a node that drains may say goodbye
    redial.py     when to dial again: backoff with jitter
translation
    translate.py  wire records <-> what the engine and the agenda understand
    offering.py   model key, limits, the offer
    sending.py    the bundle in pieces
    tasks.py      what the device does in one go
    outcome.py    what running a job came to
    phrasing.py   leases as the engine knows them, tokens as they go out
shells
    runner.py     the one place that touches the engine: the scheduler's next job, in the one worker thread
    writer.py     the device thread's streams
    membership.py one link's life: hello, offer, reports, work in, answers out
    home.py       keeps one link for as long as the process lives
    generating.py slots of the device, what a round costs before anybody asks
    opening.py    from a configuration to a node that can join
    constants.py  measured constants on disk by weights, device and build
    config.py     the resolved configuration
    launch.py     what `mainspring node` runs
    clock.py      the clock that goes on while the machine sleeps
"""
