"""Faults of our own: whoever asked is told, nothing is left open, and one link's fault is no other's."""

from collections.abc import Callable

import pytest

from mainspring.fleet import clients
from mainspring.wire import messages as m
from mainspring.wire.errors import Close
from mainspring.wire.transport import Identity
from support.fleet import Client, Fleet, Node, submit


def broken(*_anything: object) -> object:
    raise RuntimeError("planted")


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def ask(fleet: Fleet, client: Client, message: m.Message) -> m.Message:
    stream = client.open(message)
    fleet.run(0.5)
    return client.ends[stream]


def test_a_fault_in_a_status_is_its_last_message(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(fleet)
    fleet.run(0.2)
    with monkeypatch.context() as patch:
        patch.setattr(clients, "status_of_router", broken)
        end = ask(fleet, client, m.AskStatus())
    assert isinstance(end, m.Status)
    assert (end.fault, end.nodes) == ("internal fault", ())
    assert client.status().fault == ""
    assert client.status().counters["faults"] == 1
    assert not fleet.shell.book.peers.copy().pop().streams


def test_a_fault_in_a_fetch_is_its_last_message(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(fleet)
    fleet.run(0.2)
    with monkeypatch.context() as patch:
        patch.setattr(fleet.shell.fetches, "want", broken)
        end = ask(fleet, client, m.FetchBundle(bundle="b"))
    assert isinstance(end, m.BundleEnd)
    assert (end.found, end.message) == (False, "internal fault")
    assert client.closed is None


@pytest.mark.parametrize(
    "say", [lambda node: node.offer(), lambda _node: m.NodeReport(note="x"), lambda _node: m.Drain()]
)
def test_a_fault_about_what_a_node_says_of_itself_ends_its_link_with_a_reason(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, say: Callable[[Node], m.Message]
) -> None:
    ant, bee = Node(fleet, "ant"), Node(fleet, "bee")
    client = Client(fleet)
    fleet.run(0.5)
    with monkeypatch.context() as patch:
        patch.setattr(fleet.shell.nodes, "_control", broken)
        ant.say(0, say(ant))
        fleet.run(0.1)
    assert ant.closed is not None
    assert (ant.closed.close, ant.closed.message) == (Close.INTERNAL, "internal fault")
    assert bee.closed is None
    stream = client.open(submit())
    fleet.run(1.0)
    assert client.result(stream).nodes == ("bee",)


def test_what_follows_a_fault_in_the_same_bytes_opens_nothing(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request taken from a link that has just ended would stay open for ever."""
    Node(fleet, "ant")
    Client(fleet)
    fleet.run(0.5)
    [peer] = [peer for peer in fleet.shell.book.peers if peer.role == "client"]
    real = fleet.shell.clients.hear

    def hear(peer: object, event: object, now_s: float) -> None:
        if getattr(event, "stream", None) == 0:
            broken()
        real(peer, event, now_s)  # type: ignore[arg-type]

    monkeypatch.setattr(fleet.shell.clients, "hear", hear)
    events = peer.link.receive(0, m.encode(m.Goodbye()), False, fleet.world.now_s)
    events += peer.link.receive(4, m.encode(submit()), False, fleet.world.now_s)
    fleet.shell._take(peer, events, fleet.world.now_s)
    fleet.run(1.0)
    assert peer.closed
    assert not fleet.shell.clients.open


def test_a_fault_after_work_off_the_loop_is_counted_and_no_more(fleet: Fleet) -> None:
    fleet.shell.off_loop.run(lambda: 1, broken, 0.0)
    fleet.shell.timer(0.0)
    assert fleet.shell.tally.counts["faults"] == 1


def test_who_knocks_and_breaks_the_protocol_in_one_breath_keeps_no_place(fleet: Fleet) -> None:
    """Such a link was welcomed after its end, failed at that, and was never forgotten: its place was lost for good."""
    for number in range(fleet.settings.max_links + 5):
        stub = Stub(Identity("fleet", "node", f"ant{number}"))
        peer = fleet.shell.accept(stub, fleet.world.now_s)
        hello = m.encode(m.Hello(role="node", name=f"ant{number}", instance=1))
        fleet.shell.received(peer, 0, hello + b"\xff" * 16, False, fleet.world.now_s)
        assert peer.closed
        assert stub.closed
    assert not fleet.shell.book.peers
    node, client = Node(fleet, "ant0"), Client(fleet)
    fleet.run(0.5)
    assert node.joined
    stream = client.open(submit())
    fleet.run(1.0)
    client.result(stream)


class Stub:
    """A connection that nobody listens to."""

    transport, address, backlog_bytes, dialer = "memory", "memory", 0, False

    def __init__(self, peer: Identity) -> None:
        self.peer = peer
        self.closed = False

    def write(self, _stream: int, _data: bytes, _end: bool = False) -> None: ...

    def close(self, _close: Close, _message: str = "") -> None:
        self.closed = True
