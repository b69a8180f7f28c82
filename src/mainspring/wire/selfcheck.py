"""Handshakes with ourselves before a port is opened: a good certificate, none, one of another CA.

In memory, with the transports' own classes and throw-away certificates; `SelfCheckError` when one comes out wrong.
"""
