"""Handshakes with ourselves before a port is opened: a good certificate, none, one of another CA, on either side.

In memory, with the transports' own classes and throw-away certificates: they depend on OpenSSL and on qh3 behaving as
they did when this was written. `SelfCheckError` when one comes out wrong: then no port is opened.
"""

import time
from collections.abc import Callable
from copy import copy

from mainspring.wire.errors import SelfCheckError, WireError
from mainspring.wire.keyring import Keyring
from mainspring.wire.pki import Authority
from mainspring.wire.quic_connection import FleetConnection
from mainspring.wire.records import Role
from mainspring.wire.tls_channel import TlsChannel, context_of
from mainspring.wire.transport import Identity
from mainspring.wire.trust import Credentials

Seen = tuple[Identity | None, Identity | None]
"""Whom the dialer and whom the listener has verified."""
Handshake = Callable[[Keyring, Keyring, bool], Seen]
"""Dialer's keyring, listener's keyring, whether the dialer shows a certificate."""
HOST = "check.invalid"
TURNS = 40


def check_tcp() -> None:
    _check("TLS over TCP", shake_tcp)


def check_quic() -> None:
    _check("QUIC", shake_quic)


def _check(what: str, shake: Handshake) -> None:
    now_s = time.time()
    ours, theirs = Authority.create("check", now_s), Authority.create("check", now_s)
    node, router = _ring(ours, "node", now_s), _ring(ours, "router", now_s)
    strange_node, strange_router = _ring(theirs, "node", now_s), _ring(theirs, "router", now_s)
    # The dialer believes itself connected before its certificate was judged; that is TLS 1.3.
    cases: list[tuple[str, Keyring, Keyring, bool, Seen]] = [
        ("a good certificate", node, router, True, (node_sees := router.trust.own, node.trust.own)),
        ("no certificate", node, router, False, (node_sees, None)),
        ("a node of another CA", disguise(strange_node, node), router, True, (node_sees, None)),
        ("a router of another CA", node, disguise(strange_router, router), True, (None, None)),
    ]
    for name, dialer, listener, shown, expected in cases:
        try:
            seen = shake(dialer, listener, shown)
        except Exception as error:
            raise SelfCheckError(f"{what}: the handshake with {name} failed in a way of its own") from error
        if seen != expected:
            raise SelfCheckError(f"{what}: the handshake with {name} came out wrong; no port is opened")


def _ring(authority: Authority, role: Role, now_s: float) -> Keyring:
    hosts = (HOST,) if role == "router" else ()
    return Keyring(Credentials.of(authority.issue(role, "check", now_s, hosts=hosts)))


def disguise(shows: Keyring, trusts: Keyring) -> Keyring:
    """Shows the one's certificate, takes what the other takes."""
    both = copy(trusts)
    both.credentials = Credentials(shows.credentials.certificate, shows.credentials.key, trusts.credentials.ca)
    return both


def shake_tcp(dialer: Keyring, listener: Keyring, shown: bool = True, *, host: str = HOST) -> Seen:
    """One handshake in memory. Each side stops at its own fault, after its alert."""
    now_s = time.time()
    left = TlsChannel(context_of(dialer, dialer=True, shown=shown), dialer, server_name=host)
    right = TlsChannel(context_of(listener, dialer=False), listener, server_name=None)
    left.start(now_s)
    sides, broken = (left, right), set()
    for turn in range(TURNS):
        here, there = sides[turn % 2], sides[1 - turn % 2]
        data = here.outgoing()
        if data and there not in broken:
            try:
                there.receive(data, now_s)
            except WireError:
                broken.add(there)
    return left.peer, right.peer


def shake_quic(dialer: Keyring, listener: Keyring, shown: bool = True, *, host: str = HOST) -> Seen:
    """One handshake in memory, a millisecond of its own clock a turn."""
    left = FleetConnection(dialer, time.time, server_name=host, anonymous=not shown)
    right = FleetConnection(listener, time.time, original_destination=left.original_destination_connection_id)
    here, there = ("192.0.2.1", 1), ("192.0.2.2", 2)
    left.connect(there, 0.0)
    for turn in range(TURNS):
        now_s = turn * 0.001
        for data, _ in left.datagrams_to_send(now_s):
            right.receive_datagram(data, here, now_s)
        for data, _ in right.datagrams_to_send(now_s):
            left.receive_datagram(data, there, now_s)
    return left.identity, right.identity
