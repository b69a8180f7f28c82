"""Work off the loop and bundles that are waited for: what comes back is acted on, and no count is left behind."""

from collections.abc import Callable
from concurrent.futures import Executor, Future

import pytest

from mainspring.fleet.clients import MAX_SENDING
from mainspring.fleet.driver import Driver
from mainspring.fleet.links import Peer
from mainspring.fleet.offloop import attempt
from mainspring.wire import messages as m
from mainspring.wire.link import Received
from support.fleet import Client, Fleet, Node
from support.packed import hash_of


class OnTheSpot(Executor):
    def submit(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> "Future[object]":  # type: ignore[override]
        future: Future[object] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_what_comes_back_may_bring_the_next_deadline_forward() -> None:
    """A fetch that begins then has a limit, and nothing else may happen before it."""
    fleet = Fleet()
    armed: list[float] = []
    back: list[Callable[[], None]] = []
    driver = Driver(fleet.shell, lambda: 5.0, lambda delay_s, _then: armed.append(delay_s), OnTheSpot(), back.append)
    driver.arm()
    fleet.shell.off_loop.run(lambda: 7, lambda _outcome, _now_s: setattr(fleet.shell, "_drain_by_s", 6.0), 5.0)
    assert armed == [60.0], "it is not back yet"
    [come] = back
    come()
    assert armed == [60.0, 1.0]


def test_a_client_may_fetch_one_after_the_other_for_ever() -> None:
    fleet = Fleet()
    Node(fleet, "ant")
    client = Client(fleet)
    fleet.run(0.5)
    for bundle in [hash_of(client_bundle(fleet)), "nobody's"] * (MAX_SENDING + 1):
        stream = client.open(m.FetchBundle(bundle=bundle))
        fleet.run(0.2)
        end = client.ends[stream]
        assert isinstance(end, m.BundleEnd)
        assert (end.found, end.message) == (bundle != "nobody's", "")
    [peer] = [peer for peer in fleet.shell.book.peers if peer.role == "client"]
    assert (peer.awaited, [*peer.streams], [*peer.sending]) == (0, [], [])


def client_bundle(fleet: Fleet) -> bytes:
    [node] = fleet.shell.book.nodes.values()
    packed = fleet.shell.bundles.peek(node.offer.bundle)  # type: ignore[union-attr]
    assert packed is not None
    return packed.data


def test_a_node_that_offers_another_bundle_meanwhile_serves_once_that_one_is_there() -> None:
    fleet = Fleet()
    held: list[Callable[[], None]] = []
    fleet.shell.off_loop.blocking = lambda work, done: held.append(lambda: done(attempt(work), fleet.world.now_s))
    node, client = Node(fleet, "ant"), Client(fleet)
    fleet.run(0.2)
    node.bundle = b"another" * 1000
    node.say(0, node.offer())
    fleet.run(0.2)
    held.pop(0)()  # the disk has not the first one, and nobody offers it any more
    fleet.run(0.2)
    assert not client.status().models, "the second has not come"
    while held:
        held.pop(0)()
        fleet.run(0.2)
    assert node.closed is None
    assert [each.bundle for each in client.status().models] == [hash_of(node.bundle)]
    assert node.fetched == 1


class Endless(Node):
    """More bytes than it offered: found out in the middle."""

    def on_message(self, event: Received) -> None:
        if isinstance(event.message, m.FetchBundle):
            self.say(event.stream, m.BundleData(data=b"x" * (256 << 10)))
        else:
            super().on_message(event)


def test_who_is_sent_away_in_the_middle_of_its_bundle_makes_room_for_one_other() -> None:
    """Its end and the blame must not both ask the next: what waits would be told twice."""
    fleet = Fleet()
    bundle = b"small"
    liar = Endless(fleet, "liar", bundle=bundle)
    others = [Node(fleet, name, bundle=bundle) for name in ("ant", "bee")]
    fleet.run(1.0)
    assert liar.closed is not None
    assert "more than 5 bytes" in liar.closed.message
    assert sum(node.fetched for node in others) == 1
    assert [node.closed for node in others] == [None, None]
    assert {peer.awaited for peer in fleet.shell.book.peers} == {0}


def test_a_fault_of_one_who_waits_is_not_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    held: list[Callable[[], None]] = []
    fleet.shell.off_loop.blocking = lambda work, done: held.append(lambda: done(attempt(work), fleet.world.now_s))
    for name in ("ant", "bee"):
        Node(fleet, name)
    fleet.run(0.2)
    real = fleet.shell.nodes.offers._join

    def join(peer: Peer, now_s: float) -> None:
        if peer.name == "ant":
            raise RuntimeError("planted")
        real(peer, now_s)

    monkeypatch.setattr(fleet.shell.nodes.offers, "_join", join)
    while held:
        held.pop(0)()
        fleet.run(0.2)
    client = Client(fleet)
    fleet.run(0.2)
    assert [each.name for each in client.status().nodes if each.state == "ready"] == ["bee"]
    assert fleet.shell.tally.counts["faults"] == 1
    assert len(fleet.shell.fetches) == 0
