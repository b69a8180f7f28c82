"""The fleet's certificate authority: make, issue, revoke, show; and who a certificate says its holder is.

ECDSA P-256; a CA with path length 0; leaves for 30 days with one URI `spiffe://FLEET/ROLE/NAME`, client or server use
by role; keys readable by their owner alone; the revocation list a signed CRL beside the CA. `identity_of(certificate)`
is the only way to a `transport.Identity` from a socket. Time is an argument.
"""
