"""QUIC by qh3, both sides verified: adapters between its sans-IO connection and `transport.Connection`.

Idle timeout above the link's (the link decides), windows of `WINDOW_BYTES`, ALPN `mainspring/1`, no session tickets, no
0-RTT, address validation by Retry beyond a count of half-open handshakes, which are counted and capped by address.
"""
