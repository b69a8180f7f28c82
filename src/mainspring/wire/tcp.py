"""TLS 1.3 over TCP: stdlib `ssl` with CERT_REQUIRED on both sides, the `mux` on top. Where UDP is blocked.

No tickets (`num_tickets = 0`), no renegotiation, ALPN `mainspring/1`, at most 64 KiB before the handshake is done and 5
s for it. The peer's identity is read from the verified certificate by `pki.identity_of`.
"""
