"""The client certificate on a qh3 server: asked for, verified, and nothing read before it was.

A Context subclass through `QuicConnection._create_tls`; nothing of the library is patched. P-256 with SHA-256 only,
64 KiB before authentication, chain verified by `cryptography`'s client verifier with the revocation list.
"""
