"""How processes of a fleet talk: frames, messages, the link machine, transports, the certificate authority.

transport (bytes on streams, a verified peer) -> link (frames, order, liveness) -> the shells of node/ and fleet/

errors.py           why a link ends, one code on every transport
frames.py           length-checked frames, incremental
messages.py         every record that crosses a process
exchanges.py        who may open which stream, and what may follow on it
link.py             the state machine of one link: no sockets, no clock
transport.py        what a transport is
memory.py           a transport without sockets, for tests and for a node in the router's own process
mux.py              streams over one TCP connection
tls_channel.py      TLS 1.3 over memory, both sides verified
tcp_connection.py   the two on a socket
tcp.py              the TCP transport: an open port, dialling
mutual_tls.py       the client certificate on a qh3 server
quic_connection.py  a qh3 connection with our windows, streams and TLS
quic_channel.py     it between datagrams and a receiver
quic_listener.py    which datagram belongs to which connection; who may begin one
quic_endings.py     what a connection's end means for a link
quic_retry.py       address validation
clock.py            what a channel takes time from
quic.py             the QUIC transport: sockets, dialling, a new path
dial.py             which transport to dial with
pki.py              the fleet's certificate authority
pki_files.py        it in a folder
trust.py            whose certificate is taken
keyring.py          the own certificate, taken up again when renewed
watch.py            open connections judged again; closed together
guests.py           how many connections and handshakes there may be
selfcheck.py        handshakes with itself before a port is opened
"""
