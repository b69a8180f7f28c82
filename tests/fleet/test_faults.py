"""Faults of our own: whoever asked is told, nothing is left open, and one link's fault is no other's."""

from collections.abc import Callable

import numpy as np
import pytest

from mainspring.core import events as ev
from mainspring.core.cost import Cost
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


def test_a_fault_while_writing_to_one_link_is_no_other_s(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """It went to whoever's turn it was: that one was closed, and what others had to hear lay there."""
    node, one, other = Node(fleet, "ant"), Client(fleet, "one"), Client(fleet, "other")
    fleet.run(0.5)
    [sick] = [peer for peer in fleet.shell.book.peers if peer.name == "one"]
    streams = [client.open(submit(seed=n)) for n, client in enumerate((one, other))]
    fleet.run(0.002)
    assert len(fleet.shell.clients.open) == 2
    with monkeypatch.context() as patch:
        patch.setattr(sick.connection, "write", broken)
        fleet.run(1.0)
    other.result(streams[1])
    assert (node.closed, other.closed) == (None, None)
    assert one.closed is not None
    assert one.closed.close is Close.INTERNAL
    assert sick.closed
    assert fleet.shell.tally.counts.pop("faults") == 1
    fleet.empty()


def test_a_fault_in_what_was_put_off_leaves_the_rest_to_be_done(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    node, client = Node(fleet, "ant"), Client(fleet)
    fleet.run(0.5)
    stream = client.open(submit())
    monkeypatch.setattr(fleet.shell.payloads, "release", broken)
    fleet.run(1.0)
    client.result(stream)
    assert (node.closed, client.closed) == (None, None)
    assert fleet.shell.tally.counts["faults"] == 1


class Excuse(Node):
    """Says that it was nobody's fault, and answers the rest of a pass with NaN."""

    reason: m.FailReason = "late"

    def _answer(self, work: m.Work, took: float) -> m.Done | m.Failed:
        if len(work.parts) == 1:
            return super()._answer(work, took)
        labels = sum(part.labels for part in work.parts[1:])
        logits = np.full(labels, np.nan, "<f4").tobytes()
        return m.Failed(fence=work.fence, reason=self.reason, failed=(0,), logits=logits, measured_s=took)


@pytest.mark.parametrize("reason", ["late", "view_missing", "draining"])
def test_nan_beside_an_excuse_is_not_excused(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, reason: m.FailReason
) -> None:
    node, client = Excuse(fleet, "ant", cost=Cost(0.2, 1e-5, 1e-5)), Client(fleet)
    node.reason = reason
    Node(fleet, "bee", cost=Cost(0.2, 1e-5, 1e-5))
    fleet.run(0.5)
    told: list[ev.WorkFailed] = []
    real = fleet.shell.tell

    def tell(event: ev.Event) -> None:
        told.extend([event] if isinstance(event, ev.WorkFailed) else [])
        real(event)

    monkeypatch.setattr(fleet.shell, "tell", tell)
    streams = [client.open(submit(seed=n, slo="batch")) for n in range(8)]
    fleet.run(20.0)
    for stream in streams:
        client.result(stream)
    assert told
    for each in told:
        assert len(each.failed) > 1
        assert (each.late, each.view_missing) == (False, False)
    fleet.empty()


class Partial(Node):
    """Of several parts the first fails; the rest is answered in less time."""

    def _answer(self, work: m.Work, took: float) -> m.Done | m.Failed:
        done = super()._answer(work, took)
        if len(work.parts) == 1 or isinstance(done, m.Failed):
            return done
        rest = done.logits[4 * work.parts[0].labels :]
        return m.Failed(fence=work.fence, reason="view_missing", failed=(0,), logits=rest, measured_s=0.6 * took)


def test_the_time_of_a_pass_that_was_cut_short_teaches_nothing(fleet: Fleet) -> None:
    """It is that of fewer rows than were sent."""
    node, client = Partial(fleet, "ant", cost=Cost(0.2, 1e-5, 1e-5)), Client(fleet)
    fleet.run(0.5)
    streams = [client.open(submit(seed=n, slo="batch")) for n in range(24)]
    fleet.run(30.0)
    for stream in streams:
        client.result(stream)
    whole = sum(len(work.parts) == 1 for work in node.log)
    assert 0 < whole < len(node.log)
    [shown] = client.status().nodes
    assert (shown.error_passes, shown.predicted_error) == (whole, pytest.approx(0.0, abs=0.05))
    fleet.empty()
