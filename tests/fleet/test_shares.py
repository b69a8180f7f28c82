"""What one client may hold of the router's memory, and what all links together may."""

import pytest

from mainspring.fleet.errors import ClientFullError, PayloadsFullError
from mainspring.fleet.payloads import OVERHEAD_BYTES, Payloads
from mainspring.fleet.settings import Settings
from mainspring.wire import messages as m
from mainspring.wire.errors import Close
from support.fleet import Client, Fleet, Node, submit

BIG = 5000
"""View tokens: 20,000 bytes and a little more."""


def test_one_client_fills_its_share_and_the_others_go_on() -> None:
    fleet = Fleet(Settings(payload_bytes=400_000, client_bytes=100_000))
    one, other = Client(fleet, "one"), Client(fleet, "other")
    node = Node(fleet, "ant")
    fleet.run(0.5)
    node.asleep = True
    mine = [one.open(submit(BIG, 1, seed=n, slo="batch")) for n in range(8)]
    theirs = other.open(submit(BIG, 1, seed=99, slo="batch"))
    fleet.run(0.2)
    refused = [one.ends[stream] for stream in mine if stream in one.ends]
    assert len(refused) == 4
    for each in refused:
        assert isinstance(each, m.Refused)
        assert (each.code, each.status) == ("client_full", 429)
        assert "at most 100,000 (limits.client_mib)" in each.message
        assert each.retry_after_s is not None
    assert theirs not in other.ends, "it waits"
    node.wake()
    fleet.run(10.0)
    other.result(theirs)
    fleet.empty()
    again = one.open(submit(BIG, 1, seed=1))
    fleet.run(1.0)
    one.result(again)


def test_links_of_one_name_have_one_share() -> None:
    fleet = Fleet(Settings(client_bytes=50_000))
    Node(fleet, "ant").asleep = True
    links = [Client(fleet, "one", instance=n) for n in range(2)]
    fleet.run(0.5)
    streams = [link.open(submit(BIG, 1, seed=n, slo="batch")) for n, link in enumerate(links * 2)]
    fleet.run(0.2)
    refused = [link for link, stream in zip(links * 2, streams, strict=True) if stream in link.ends]
    assert refused


def test_a_view_that_an_owner_s_requests_share_counts_once_and_goes_with_the_last() -> None:
    held = Payloads(1 << 20, 60_000)
    for n in range(8):
        held.add(f"a{n}", submit(BIG, 1, view_key="v"), "tiny", "one")
    assert 20_000 + 8 * OVERHEAD_BYTES < held.owned_bytes("one") < 60_000
    held.add("b", submit(BIG, 1, view_key="v"), "tiny", "other")
    with pytest.raises(ClientFullError):
        held.add("c", submit(3 * BIG, 1), "tiny", "other")
    for name in [*(f"a{n}" for n in range(8)), "b", "b", "c"]:
        held.release(name)
    assert (held.held_bytes, held.owned_bytes("one"), held.owned_bytes("other")) == (0, 0, 0)
    assert not held._owned
    assert not held._seen


def test_the_whole_is_refused_by_its_own_name() -> None:
    held = Payloads(30_000, 30_000)
    held.add("a", submit(BIG, 1), "tiny", "one")
    with pytest.raises(PayloadsFullError, match=r"limits\.payload_mib"):
        held.add("b", submit(BIG, 1), "tiny", "other")
    assert held.owned_bytes("other") == 0


def test_unfinished_frames_of_all_links_have_a_total_and_who_holds_most_pays() -> None:
    fleet = Fleet(Settings(unfinished_total_bytes=1 << 20))
    small, large, calm = (Client(fleet, name) for name in ("small", "large", "calm"))
    fleet.run(0.5)
    frame = m.encode(submit(1 << 20, 1))
    for client, size in ((small, 200_000), (large, 700_000), (calm, 1000)):
        client.connection.write(4, frame[:size])
    fleet.run(0.2)
    assert fleet.shell.book.unfinished.noted_bytes > 890_000
    small.connection.write(4, frame[200_000:400_000])
    fleet.run(0.2)
    assert large.closed is not None
    assert large.closed.close is Close.LIMIT
    assert "limits.unfinished_total_mib" in large.closed.message
    assert small.closed is None
    assert calm.closed is None
    assert fleet.shell.book.unfinished.noted_bytes < 500_000
    small.leave()
    calm.leave()
    fleet.run(0.2)
    assert fleet.shell.book.unfinished.noted_bytes == 0


def test_a_frame_that_ends_is_unfinished_no_more() -> None:
    fleet = Fleet()
    client = Client(fleet)
    fleet.run(0.5)
    client.open(submit(100_000, 1))
    fleet.run(0.2)
    assert fleet.shell.book.unfinished.noted_bytes == 0


def test_what_peers_do_not_read_has_a_total_and_who_holds_most_pays() -> None:
    fleet = Fleet(Settings(backlog_total_bytes=1 << 20))
    one, other = Client(fleet, "one"), Client(fleet, "other")
    fleet.run(0.5)
    by_name = {peer.name: peer for peer in fleet.shell.book.peers}
    backlog = {"one": 300_000, "other": 600_000}
    budget = fleet.shell.book.backlog
    budget._held = lambda peer: backlog.get(peer.name, 0)
    for name in ("one", "other"):
        fleet.shell._settle(by_name[name], fleet.world.now_s)
    assert (one.closed, other.closed) == (None, None)
    backlog["other"] = 0  # it read, and nobody was told
    backlog["one"] = 900_000
    fleet.shell._settle(by_name["one"], fleet.world.now_s)
    assert not fleet.shell.tally.counts, "the truth is looked at before anybody is blamed"
    backlog["other"] = 200_000
    fleet.shell._settle(by_name["other"], fleet.world.now_s)
    fleet.run(0.2)
    assert one.closed is not None
    assert "limits.backlog_total_mib" in one.closed.message
    assert other.closed is None
