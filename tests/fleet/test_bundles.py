"""Bundles come from any node and go to everybody: none is kept or given on that is not what its name says."""

import asyncio
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mainspring.core.cost import Cost
from mainspring.fleet import clock
from mainspring.fleet.bundles import BundleCache
from mainspring.fleet.client import FleetClient
from mainspring.fleet.clients import MAX_SENDING
from mainspring.fleet.driver import Driver
from mainspring.fleet.errors import BundleError
from mainspring.fleet.fetches import FETCH_S, FETCHES
from mainspring.fleet.offloop import attempt
from mainspring.wire import messages as m
from mainspring.wire.errors import Close
from support.fleet import BUNDLE, Client, Fleet, Node, submit
from support.loop import Hub, LoopFleet
from support.packed import by_beginning, hash_of

RUBBISH = b"rubbish" * 1000


def get(fleet: Fleet, client: Client, bundle: str = hash_of(BUNDLE)) -> bytes | None:
    stream = client.open(m.FetchBundle(bundle=bundle))
    fleet.run(1.0)
    end = client.ends[stream]
    assert isinstance(end, m.BundleEnd)
    return b"".join(each.data for each in client.told[stream] if isinstance(each, m.BundleData)) if end.found else None


def test_a_node_that_offers_rubbish_under_a_bundle_s_hash_is_sent_away_and_the_next_is_asked() -> None:
    fleet = Fleet()
    liar = Node(fleet, "liar", bundle=RUBBISH, model="other", named=hash_of(BUNDLE))
    fleet.run(0.5)
    assert liar.closed is not None
    assert (liar.closed.close, liar.closed.remote) == (Close.PROTOCOL, True)
    assert "another hash" in liar.closed.message
    client = Client(fleet)
    fleet.run(0.5)
    assert get(fleet, client) is None, "nothing was kept"
    Node(fleet, "ant")
    fleet.run(0.5)
    assert get(fleet, client) == BUNDLE
    stream = client.open(submit())
    fleet.run(1.0)
    client.result(stream)


def test_an_honest_node_behind_a_liar_is_asked_and_joins() -> None:
    fleet = Fleet()
    held = hold(fleet)
    liar = Node(fleet, "liar", bundle=RUBBISH, named=hash_of(BUNDLE))
    fleet.run(0.1)
    honest = Node(fleet, "ant")
    fleet.run(0.1)
    while held:
        held.pop(0)()
        fleet.run(0.1)
    assert liar.closed is not None
    assert honest.closed is None
    assert [each.name for each in status_of(fleet).nodes] == ["ant"]


def status_of(fleet: Fleet) -> m.Status:
    client = Client(fleet, "looker")
    fleet.run(0.2)
    return client.status()


def hold(fleet: Fleet) -> list[Callable[[], None]]:
    """Work off the loop ends when the test calls it."""
    held: list[Callable[[], None]] = []

    def blocking(work: Callable[[], object], done: Callable[[object, float], None]) -> None:
        held.append(lambda: done(attempt(work), fleet.world.now_s))

    fleet.shell.off_loop.blocking = blocking
    return held


def test_many_nodes_with_one_bundle_cost_one_fetch() -> None:
    fleet = Fleet()
    held = hold(fleet)
    nodes = [Node(fleet, f"ant{n}") for n in range(8)]
    fleet.run(0.2)
    asked = sum(bool(node.fetched) for node in nodes)
    assert (len(held), asked) == (1, 0), "the disk is looked at once"
    while held:
        held.pop(0)()
        fleet.run(0.2)
    assert sum(bool(node.fetched) for node in nodes) == 1
    assert len(status_of(fleet).nodes) == 8


def test_a_node_that_leaves_while_its_bundle_is_judged_harms_nobody() -> None:
    fleet = Fleet()
    held = hold(fleet)
    gone, stays = Node(fleet, "gone"), Node(fleet, "stays")
    fleet.run(0.1)
    held.pop(0)()  # the disk has none
    fleet.run(0.1)
    gone.leave()
    fleet.run(0.1)
    while held:
        held.pop(0)()
        fleet.run(0.1)
    assert [each.name for each in status_of(fleet).nodes] == ["stays"]
    assert stays.closed is None
    assert stays.fetched == 0, "what came is judged, whoever brought it"
    assert len(fleet.shell.fetches) == 0


def test_a_node_that_leaves_before_its_bundle_has_come_makes_room_for_the_next_at_once() -> None:
    fleet = Fleet()
    gone = Node(fleet, "gone")
    gone.gives_bundles = False
    fleet.run(0.1)
    Node(fleet, "stays")
    fleet.run(0.1)
    assert gone.fetched
    gone.leave()
    fleet.run(0.5)
    assert [each.name for each in status_of(fleet).nodes] == ["stays"]
    assert len(fleet.shell.fetches) == 0


def test_a_bundle_that_never_comes_ends_the_link_and_the_next_is_asked() -> None:
    fleet = Fleet()
    mute, ant = Node(fleet, "mute"), None
    mute.gives_bundles = False
    fleet.run(0.1)
    fleet.shell._deadlines, links = [], fleet.shell._deadlines
    assert FETCH_S < fleet.shell.next_deadline() < FETCH_S + 0.1, "whether or not a link is heard of before"
    fleet.shell._deadlines = links
    ant = Node(fleet, "ant")
    fleet.run(FETCH_S - 1.0)
    assert mute.closed is None
    assert not status_of(fleet).models
    fleet.run(3.0)
    assert mute.closed is not None
    assert f"within {FETCH_S:g} s" in mute.closed.message
    assert ant.closed is None
    assert [each.name for each in status_of(fleet).nodes] == ["ant"]


def test_offers_that_come_faster_than_bundles_are_looked_at_one_by_one() -> None:
    fleet = Fleet()
    held = hold(fleet)
    node = Node(fleet, "ant")
    fleet.run(0.1)
    for n in range(50):
        node.fields["bundle"] = f"another{n}"
        node.say(0, node.offer())
    fleet.run(0.1)
    assert (len(held), len(fleet.shell.fetches)) == (1, 1)


def test_so_many_bundles_at_once_and_no_more() -> None:
    fleet = Fleet()
    held = hold(fleet)
    for n in range(FETCHES + 3):
        Node(fleet, f"ant{n}", bundle=BUNDLE + bytes([n]), model=f"key{n}")
    fleet.run(0.2)
    assert len(held) == FETCHES
    while held:
        held.pop(0)()
        fleet.run(0.2)
        assert len(held) <= FETCHES
    assert len(status_of(fleet).nodes) == FETCHES + 3


def test_a_client_may_wait_for_so_many_bundles_at_once() -> None:
    fleet = Fleet()
    hold(fleet)
    client = Client(fleet)
    fleet.run(0.2)
    streams = [client.open(m.FetchBundle(bundle=f"b{n}")) for n in range(MAX_SENDING + 1)]
    fleet.run(0.2)
    assert [stream for stream in streams if stream in client.ends] == [streams[-1]]
    end = client.ends[streams[-1]]
    assert isinstance(end, m.BundleEnd)
    assert str(MAX_SENDING) in end.message


def test_a_router_that_can_not_check_now_blames_nobody_and_looks_again() -> None:
    """Declined, a node would stay and never offer again: one failed fork and it was lost until a restart."""
    working = []

    def check(name: str, data: bytes) -> None:
        if not working:
            raise OSError("no process can be started")
        by_beginning(name, data)

    fleet = Fleet(check=check)
    nodes = [Node(fleet, name, back=1.0) for name in ("ant", "bee")]
    fleet.run(0.5)
    for node in nodes:
        assert node.closed is not None
        assert node.closed.close is Close.INTERNAL
        assert not node.declined
    assert sum(node.fetched for node in nodes) == 1, "the next one's would fare no better"
    assert not fleet.shell.tally.counts.get("bundles_refused")
    working.append(True)
    fleet.run(3.0)
    assert [each.name for each in status_of(fleet).nodes] == ["ant", "bee"]


def test_a_node_that_serves_loses_nothing_by_a_check_that_can_not_be_made() -> None:
    def broken(_name: str, _data: bytes) -> None:
        raise OSError("no process can be started")

    fleet = Fleet()
    node, client = Node(fleet, "ant", cost=Cost(0.5, 1e-5, 1e-5)), Client(fleet)
    fleet.run(0.5)
    fleet.shell.bundles = BundleCache(check=broken)  # what it was let in with was dropped meanwhile
    stream = client.open(submit())
    assert get(fleet, client) is None
    assert node.closed is None
    assert client.result(stream).retries == 0


def test_what_is_said_of_a_link_that_has_ended_is_not_said_of_the_name_s_next() -> None:
    fleet = Fleet()
    node, client = Node(fleet, "ant", back=0.1), Client(fleet)
    fleet.run(0.5)
    [old] = fleet.shell.book.nodes.values()
    node.network.drop()
    fleet.run(1.0)
    fleet.shell.nodes.offers.decline(old, BundleError("too late"), fleet.world.now_s)
    stream = client.open(submit())
    fleet.run(1.0)
    client.result(stream)


def test_what_only_the_disk_has_is_given(tmp_path: Path) -> None:
    fleet = Fleet()
    fleet.shell.bundles = cache = BundleCache(tmp_path, check=lambda _name, _data: None)
    cache.admit("kept", b"bytes", size=5, sha256=hashlib.sha256(b"bytes").hexdigest())
    client = Client(fleet)
    fleet.run(0.2)
    assert get(fleet, client, "kept") == b"bytes"


def test_what_a_killed_process_left_half_written_goes(tmp_path: Path) -> None:
    left, fresh = tmp_path / "a.123.part", tmp_path / "b.456.part"
    for path in (left, fresh):
        path.write_bytes(b"half")
    os.utime(left, (1.0, 1.0))
    cache = BundleCache(tmp_path, check=by_beginning)
    cache.admit(hash_of(b"bytes"), b"bytes", size=5, sha256=hashlib.sha256(b"bytes").hexdigest())
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".bundle", ".part"]
    assert fresh.exists(), "another process may be at it"


def test_names_that_differ_in_capitals_are_not_one_file(tmp_path: Path) -> None:
    cache = BundleCache(tmp_path, check=lambda _name, _data: None)
    for name in ("abc", "ABC", "../abc"):
        cache.admit(name, b"bytes", size=5, sha256=hashlib.sha256(b"bytes").hexdigest())
    assert [path.name for path in tmp_path.iterdir()] == ["abc.bundle"]


def test_the_process_that_unpacks_is_confined() -> None:
    script = (
        "from mainspring.text.identify import confine, MEMORY_BYTES; confine(); import resource;"
        "print(resource.getrlimit(resource.RLIMIT_AS)[0] == MEMORY_BYTES)"
    )
    command = (sys.executable, "-c", script)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    assert done.stdout.strip() == "True"


def test_the_router_s_loop_goes_on_while_a_bundle_is_judged() -> None:
    judged = threading.Event()

    def slow(name: str, data: bytes) -> None:
        assert judged.wait(10.0), "the status came first"
        by_beginning(name, data)

    async def scene() -> None:
        loop, hub = asyncio.get_running_loop(), Hub()
        hub.shell.bundles = BundleCache(check=slow)
        with ThreadPoolExecutor(1) as executor:
            hub.driver = Driver(hub.shell, clock.now_s, loop.call_later, executor, loop.call_soon_threadsafe)
            node = Node(LoopFleet(hub), "ant")  # type: ignore[arg-type]
            async with FleetClient(hub.dialer("client", "gate"), "hub", 1, name="gate") as fleet:
                while not node.fetched:
                    await asyncio.sleep(0.01)
                assert not (await fleet.status()).models
                judged.set()
                while not (await fleet.status()).models:
                    await asyncio.sleep(0.01)
        node.kill()

    asyncio.run(asyncio.wait_for(scene(), 30.0))
