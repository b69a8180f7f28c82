"""How processes of a fleet talk: frames, messages, the link machine, transports, the certificate authority.

transport (bytes on streams, a verified peer) -> link (frames, order, liveness) -> the shells of node/ and fleet/

errors.py      why a link ends, one code on every transport
frames.py      length-checked frames, incremental
messages.py    every record that crosses a process
exchanges.py   who may open which stream, and what may follow on it
link.py        the state machine of one link: no sockets, no clock
transport.py   what a transport is
memory.py      a transport without sockets, for tests and for a node in the router's own process
mux.py         streams over one TCP connection
tcp.py         TLS 1.3 over TCP
quic.py        QUIC, both sides verified
mutual_tls.py  the client certificate on a qh3 server
pki.py         the fleet's certificate authority
selfcheck.py   handshakes with itself before a port is opened
"""
