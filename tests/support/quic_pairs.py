"""QUIC connections in memory, for tests of their handshake."""

from qh3 import tls

from mainspring.wire.mutual_tls import ListenerContext
from mainspring.wire.quic_connection import FleetConnection
from support.fleet_pki import HOST, NODE, NOW_S, ROUTER, ring


def quic_pair() -> tuple[FleetConnection, FleetConnection]:
    left = FleetConnection(ring(NODE), lambda: NOW_S, server_name=HOST)
    right = FleetConnection(ring(ROUTER), lambda: NOW_S, original_destination=left.original_destination_connection_id)
    left.connect(("192.0.2.2", 2), 0.0)
    return left, right


def pump(left: FleetConnection, right: FleetConnection, begin_s: float = 0.0, turns: int = 20) -> float:
    now_s = begin_s
    for _ in range(turns):
        now_s += 0.001
        for data, _ in left.datagrams_to_send(now_s):
            right.receive_datagram(data, ("192.0.2.1", 1), now_s)
        for data, _ in right.datagrams_to_send(now_s):
            left.receive_datagram(data, ("192.0.2.2", 2), now_s)
    return now_s


def listener_context() -> ListenerContext:
    """One that waits for the client's certificate."""
    left, right = quic_pair()
    for data, _ in left.datagrams_to_send(0.0):
        right.receive_datagram(data, ("192.0.2.1", 1), 0.0)
    assert isinstance(right.tls, ListenerContext)
    assert right.tls.state == tls.State.SERVER_EXPECT_FINISHED
    return right.tls


def buffers() -> dict[tls.Epoch, tls.Buffer]:
    return {epoch: tls.Buffer(capacity=16384) for epoch in tls.Epoch}
