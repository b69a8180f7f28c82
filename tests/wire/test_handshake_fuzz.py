"""Handshakes spoiled on the way, on each transport: an alert, or a peer who is who it was; never a crash."""

from hypothesis import given, settings
from hypothesis import strategies as st
from qh3 import tls

from mainspring.wire.errors import WireError
from mainspring.wire.tls_channel import HANDSHAKE_BYTES, TlsChannel, context_of
from support.fleet_pki import HOST, NODE, NOW_S, ROUTER, ring
from support.quic_pairs import buffers, listener_context, quic_pair

mutations = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 4000), st.sampled_from(["flip", "cut", "double", "drop", "junk"]),
              st.binary(min_size=1, max_size=60)), min_size=1, max_size=4,
)  # fmt: skip


def mutate(data: bytes, at: int, how: str, junk: bytes) -> list[bytes]:
    at %= max(1, len(data))
    if how == "flip":
        return [data[:at] + bytes([data[at] ^ (junk[0] or 1)]) + data[at + 1 :]] if data else [data]
    if how == "cut":
        return [data[:at]]
    if how == "double":
        return [data, data]
    if how == "drop":
        return []
    return [data[:at] + junk + data[at:]]


@settings(max_examples=60, deadline=None)
@given(mutations)
def test_a_fuzzed_quic_handshake_never_lets_in_who_was_not_verified(
    changes: list[tuple[int, int, str, bytes]],
) -> None:
    left, right = quic_pair()
    serial, now_s = 0, 0.0
    by_serial = {number: (at, how, junk) for number, at, how, junk in changes}
    for _ in range(12):
        now_s += 0.3
        for here, there, address in ((left, right, ("192.0.2.1", 1)), (right, left, ("192.0.2.2", 2))):
            here.handle_timer(now_s)
            for data, _ in here.datagrams_to_send(now_s):
                pieces = mutate(data, *by_serial[serial]) if serial in by_serial else [data]
                serial += 1
                for piece in pieces:
                    there.receive_datagram(piece, address, now_s)
    assert right.identity in (None, ring(NODE).trust.own)
    assert left.identity in (None, ring(ROUTER).trust.own)


messages = st.lists(
    st.tuples(st.sampled_from([1, 2, 4, 8, 11, 13, 15, 20, 24, 25, 255]), st.binary(max_size=300), st.integers(-3, 3)),
    min_size=1, max_size=5,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(messages, st.booleans(), st.integers(1, 200))
def test_malformed_handshake_messages_are_alerts_and_nothing_else(
    sent: list[tuple[int, bytes, int]], waiting: bool, step: int
) -> None:
    """Handed to the TLS context as they come out of decrypted packets: below what mutated datagrams reach."""
    if waiting:
        context, epoch = listener_context(), tls.Epoch.HANDSHAKE
    else:
        fresh = quic_pair()[1]
        fresh._version = 1
        bridge = fresh._create_tls(b"12345678")
        context, epoch = bridge.tls, tls.Epoch.INITIAL
    data = b"".join(bytes([kind]) + max(0, len(body) + wrong).to_bytes(3, "big") + body for kind, body, wrong in sent)
    try:
        for at in range(0, len(data), step):
            context.handle_message(data[at : at + step], buffers(), epoch=epoch)
    except tls.Alert:
        pass
    assert context.identity is None
    assert len(context._receive_buffer) <= HANDSHAKE_BYTES


@settings(max_examples=60, deadline=None)
@given(mutations, st.integers(1, 3000))
def test_a_fuzzed_tls_handshake_never_lets_in_who_was_not_verified(
    changes: list[tuple[int, int, str, bytes]], step: int
) -> None:
    left = TlsChannel(context_of(ring(NODE), dialer=True), ring(NODE), server_name=HOST)
    right = TlsChannel(context_of(ring(ROUTER), dialer=False), ring(ROUTER), server_name=None)
    left.start(NOW_S)
    by_serial = {number % 6: (at, how, junk) for number, at, how, junk in changes}
    broken: set[int] = set()
    sides, serial = (left, right), 0
    for turn in range(12):
        here, there = sides[turn % 2], sides[1 - turn % 2]
        data = here.outgoing()
        for piece in mutate(data, *by_serial[serial]) if data and serial in by_serial else [data]:
            for at in range(0, len(piece), step):
                if id(there) in broken:
                    break
                try:
                    there.receive(piece[at : at + step], NOW_S)
                except WireError:
                    broken.add(id(there))
        serial += bool(data)
    assert right.peer in (None, ring(NODE).trust.own)
    assert left.peer in (None, ring(ROUTER).trust.own)
