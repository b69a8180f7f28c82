"""Bundles come from any node and go to everybody: none is kept or given on that is not what its name says."""

import asyncio
import hashlib
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mainspring.fleet import clock
from mainspring.fleet.bundle_check import by_unpacking
from mainspring.fleet.bundles import BundleCache
from mainspring.fleet.client import FleetClient
from mainspring.fleet.clients import MAX_SENDING
from mainspring.fleet.driver import Driver
from mainspring.fleet.errors import BundleError
from mainspring.fleet.fetches import FETCH_S, FETCHES
from mainspring.fleet.offloop import attempt
from mainspring.text.bundle import Bundle
from mainspring.wire import messages as m
from mainspring.wire.errors import Close
from support.fleet import BUNDLE, Client, Fleet, Node, submit
from support.loop import Hub, LoopFleet
from support.packed import by_beginning, hash_of
from support.tiny_tokenizer import write_tiny_tokenizer

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


def test_a_router_that_can_not_check_declines_and_blames_nobody() -> None:
    def broken(_name: str, _data: bytes) -> None:
        raise OSError("no process can be started")

    fleet = Fleet()
    fleet.shell.bundles = BundleCache(check=broken)
    node = Node(fleet, "ant")
    fleet.run(0.5)
    assert node.closed is None
    assert [each.code for each in node.declined] == ["internal"]


def test_what_only_the_disk_has_is_given(tmp_path: Path) -> None:
    fleet = Fleet()
    fleet.shell.bundles = cache = BundleCache(tmp_path, check=lambda _name, _data: None)
    cache.admit("kept", b"bytes", size=5, sha256=hashlib.sha256(b"bytes").hexdigest())
    client = Client(fleet)
    fleet.run(0.2)
    assert get(fleet, client, "kept") == b"bytes"


# ------------------------------------------------------------------ the real check


def packed(folder: Path) -> tuple[str, bytes]:
    bundle = Bundle.load(write_tiny_tokenizer(folder))
    return bundle.hash, bundle.pack()


def test_the_check_unpacks_in_a_process_of_its_own(tmp_path: Path) -> None:
    name, data = packed(tmp_path / "a")
    by_unpacking(name, data)
    with pytest.raises(BundleError, match="another hash"):
        by_unpacking("0" * 64, data)
    with pytest.raises(BundleError, match="no bundle"):
        by_unpacking(name, data[:-10])
    with pytest.raises(BundleError, match="no bundle"):
        by_unpacking(name, b"")


def test_bytes_that_crash_or_delay_whoever_unpacks_them_are_no_bundle() -> None:
    crash = (sys.executable, "-c", "import os; os.abort()")
    with pytest.raises(BundleError, match="ends with -6"):
        by_unpacking("a", b"x", crash)
    with pytest.raises(BundleError, match=r"within 0\.2 s"):
        by_unpacking("a", b"x", (sys.executable, "-c", "import time; time.sleep(60)"), 0.2)
    with pytest.raises(OSError, match="No such file"):
        by_unpacking("a", b"x", ("/nonexistent",))


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
