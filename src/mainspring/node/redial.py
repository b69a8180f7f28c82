"""When to dial again and how. Pure: `Redial.next(outcome, now_s, chance)` gives a delay and a transport.

Full jitter between 0.2 s and 30 s, doubled per failure, reset after a link that lasted a minute; after a hopeless close
(`wire.errors.HOPELESS`) at once the longest wait. QUIC first; after two timeouts of the handshake TCP, said in the log,
QUIC tried again every ten minutes.
"""
