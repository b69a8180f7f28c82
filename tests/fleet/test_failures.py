"""Failures in virtual time: whatever breaks, each request is answered once, correctly or with a typed error."""

import pytest

from mainspring.core.cost import Cost
from mainspring.core.nouns import Limits
from mainspring.fleet.settings import Settings
from mainspring.wire import messages as m
from mainspring.wire.errors import Close
from mainspring.wire.link import Rules
from support.fleet import Client, Fleet, Node, generation, known_as, submit

SLOW = Cost(0.3, 1e-5, 1e-5)
"""Long enough that a fault always comes in the middle of a pass."""


def up(*names: str, cost: Cost = SLOW, **fields: object) -> tuple[Fleet, list[Node], Client]:
    fleet = Fleet(Settings(rules=Rules(timing=m.Timing(idle_s=3.0))))
    nodes = [Node(fleet, name, cost=cost, **fields) for name in names]  # type: ignore[arg-type]
    client = Client(fleet)
    fleet.run(0.5)
    return fleet, nodes, client


def ask(fleet: Fleet, client: Client, count: int = 8, slo: str = "batch") -> list[int]:
    streams = [client.open(submit(200, 4, seed=i, slo=slo)) for i in range(count)]
    fleet.run(0.05)
    return streams


def test_a_node_killed_mid_pass_loses_nothing() -> None:
    fleet, [one, _], client = up("ant", "bee")
    streams = ask(fleet, client)
    assert one.running
    one.kill()
    fleet.run(20.0)
    for stream in streams:
        client.result(stream)
    assert any(client.result(stream).retries for stream in streams)
    assert [peer.name for peer in fleet.shell.book.nodes.values()] == ["bee"]
    fleet.empty()


def test_work_that_moves_keeps_its_place() -> None:
    fleet, [one, _], client = up("ant", "bee", limits=Limits(pass_parts=2))
    early = ask(fleet, client, 2)
    one.kill()
    fleet.run(0.5)
    later = [client.open(submit(200, 4, seed=100 + i, slo="batch")) for i in range(40)]
    fleet.run(60.0)
    order = [*client.ends]
    assert max(order.index(stream) for stream in early) < min(order.index(stream) for stream in later[20:])
    fleet.empty()


def test_a_request_that_kills_nodes_is_condemned_and_the_others_are_answered() -> None:
    fleet, nodes, client = up("ant", "bee", "cat", back=None)
    victim = client.open(submit(seed=99, slo="batch"))
    for node in nodes:
        node.faults.poison = {f"gate.{client.link.epoch}.{victim}"}
    fleet.run(0.0)
    streams = ask(fleet, client, 4)
    fleet.run(60.0)
    assert client.refusal(victim) == "condemned"
    for stream in streams:
        client.result(stream)
    assert sum(not node.dead for node in nodes) == 1
    fleet.empty()


def test_a_stopped_node_s_work_is_given_to_others_and_what_it_says_later_is_discarded_or_ends_its_link() -> None:
    fleet, [one, _], client = up("ant", "bee")
    streams = ask(fleet, client)
    one.asleep = True
    fleet.run(2.0)
    one.wake()  # within the idle timeout: the link lives, its answers are late but right
    fleet.run(20.0)
    for stream in streams:
        client.result(stream)
    assert one.closed is None
    streams = ask(fleet, client)
    one.asleep = True
    fleet.run(10.0)
    one.wake()  # beyond it: the router has ended the link
    fleet.run(10.0)
    for stream in streams:
        client.result(stream)
    assert one.closed is not None
    fleet.empty()


def test_a_cut_network_that_heals_in_time_costs_nothing() -> None:
    fleet, [node], client = up("ant")
    streams = ask(fleet, client, 4)
    node.network.cut()
    fleet.run(1.5)
    node.network.heal()
    fleet.run(20.0)
    for stream in streams:
        client.result(stream)
    assert node.closed is None
    fleet.empty()


def test_a_network_cut_for_long_moves_the_work_and_the_node_comes_back() -> None:
    fleet, [one, _], client = up("ant", "bee", back=0.5)
    streams = ask(fleet, client)
    one.network.cut()
    fleet.run(10.0)
    one.network.heal()
    fleet.run(20.0)
    for stream in streams:
        client.result(stream)
    assert set(fleet.shell.book.nodes) == {"ant", "bee"}
    again = ask(fleet, client)
    fleet.run(10.0)
    for stream in again:
        client.result(stream)
    assert one.log[-1].fence.epoch > one.log[0].fence.epoch
    fleet.empty()


def test_links_that_fall_silent_together_are_no_crash() -> None:
    fleet, nodes, client = up("ant", "bee", "cat", back=0.5)
    streams = ask(fleet, client)
    for node in nodes[:2]:
        node.network.cut()
    seen: list[bool] = []
    judge = fleet.shell.book.crashed
    fleet.shell.book.crashed = lambda *a: seen.append(judge(*a)) or seen[-1]  # type: ignore[method-assign, func-returns-value]
    fleet.run(30.0)
    assert seen == [False, False]
    for stream in streams:
        client.result(stream)
    nodes[2].kill()
    fleet.run(10.0)
    assert seen == [False, False, True]
    fleet.empty()


def test_answers_that_are_not_finite_are_tried_again_and_then_refused() -> None:
    fleet, [node], client = up("ant")
    node.faults.nan = 1
    [stream] = ask(fleet, client, 1)
    fleet.run(5.0)
    assert client.result(stream).passes == 1
    node.faults.nan = 100
    [stream] = ask(fleet, client, 1)
    fleet.run(5.0)
    assert client.refusal(stream) == "work_failed"
    assert len(node.log) == 2 + 3
    fleet.empty()


def test_one_part_that_is_not_finite_does_not_take_the_others_with_it() -> None:
    fleet, [node], client = up("ant")
    client.open(submit(2000, 8, seed=77, slo="batch"))
    fleet.run(0.01)
    streams = ask(fleet, client, 6)
    fleet.run(0.2)
    node.faults.nan = 1  # the pass that all six share, its first part
    fleet.run(0.15)
    node.faults.nan = 1
    fleet.run(10.0)
    for stream in streams:
        client.result(stream)
    fleet.empty()


def test_logits_of_the_wrong_length_are_not_believed() -> None:
    fleet, [node], client = up("ant")
    node.faults.short = 1
    [stream] = ask(fleet, client, 1)
    fleet.run(5.0)
    client.result(stream)
    assert len(node.log) == 2
    fleet.empty()


def test_a_node_that_answers_twice_loses_its_link_and_nothing_is_lost() -> None:
    fleet, [one, _], client = up("ant", "bee", back=0.5)
    one.faults.twice = 1
    streams = ask(fleet, client)
    fleet.run(20.0)
    for stream in streams:
        client.result(stream)
    assert one.log[-1].fence.epoch > 0
    assert fleet.shell.book.nodes["ant"].epoch > 3
    fleet.empty()


def test_a_node_ten_times_slower_than_it_said_is_found_out() -> None:
    fleet, [one, _], client = up("ant", "bee", cost=Cost(0.02, 1e-5, 1e-5))
    one.faults.slow = 10.0
    answered = 0
    for i in range(200):
        stream = client.open(submit(200, 4, seed=i))
        fleet.run(0.03)
        answered += stream in client.ends
    fleet.run(30.0)
    for stream in client.asked:
        assert stream in client.ends
        if isinstance(client.ends[stream], m.Result):
            client.result(stream)
    assert fleet.shell.core.state.nodes["ant"].fit.cost.seconds(200, 32) > 0.1, "learnt from its passes"
    last = [client.result(stream) for stream in [*client.asked][-50:]]
    assert sum("bee" in result.nodes for result in last) > 40
    fleet.empty()


def test_out_of_memory_fails_the_pass_and_not_the_node() -> None:
    fleet, [node], client = up("ant")
    node.faults.oom = 2
    streams = ask(fleet, client, 4)
    fleet.run(20.0)
    for stream in streams:
        client.result(stream)
    assert node.closed is None
    fleet.empty()


def test_a_view_that_was_evicted_is_scanned_again() -> None:
    fleet, [node], client = up("ant")
    one = submit(2000, 4, seed=1, view_key="v")
    client.open(one)
    fleet.run(2.0)
    node.views.clear()
    stream = client.open(one)
    fleet.run(5.0)
    result = client.result(stream)
    assert node.scans == [known_as("v")] * 2
    assert result.retries == 1
    fleet.empty()


def test_a_router_killed_and_started_again_serves_the_nodes_that_come_back() -> None:
    fleet, _, client = up("ant", "bee", back=0.3)
    one_view = submit(2000, 4, seed=1, view_key="v")
    client.open(one_view)
    fleet.run(2.0)
    lost = ask(fleet, client)
    fleet.crash()
    fleet.run(0.2)
    assert client.closed is not None, "clients are told: nothing is sent twice by itself"
    assert not set(lost) & set(client.ends)
    fleet.run(2.0)
    again = Client(fleet, instance=8)
    fleet.run(0.2)
    streams = ask(fleet, again)
    kept = again.open(one_view)
    fleet.run(20.0)
    for stream in streams:
        again.result(stream)
    assert again.result(kept).cached_tokens == 2000, "its first report after the welcome listed its keys"
    fleet.empty()


def test_a_link_whose_certificate_ended_is_no_crash() -> None:
    fleet, [one, _], client = up("ant", "bee")
    streams = ask(fleet, client)
    fleet.shell.end(fleet.shell.book.nodes["ant"], Close.CERTIFICATE, "revoked", fleet.world.now_s)
    fleet.driver.arm()
    fleet.run(20.0)
    for stream in streams:
        client.result(stream)
    assert one.closed is not None
    assert one.closed.close is Close.CERTIFICATE
    fleet.empty()


def test_a_supervised_child_that_exits_is_a_crash_at_once() -> None:
    fleet, [one, _], client = up("ant", "bee")
    streams = ask(fleet, client)
    one.kill()
    fleet.shell.child_exited("ant", fleet.world.now_s)
    fleet.driver.arm()
    fleet.run(2.0)
    for stream in streams:
        client.result(stream)
    fleet.empty()


@pytest.mark.parametrize("jump_s", [-100.0, 0.0, 3600.0])
def test_a_clock_that_jumps_answers_everything(jump_s: float) -> None:
    """Back is read as no step; forward as a stop of this process, after which nobody is blamed for the silence."""
    fleet, _, client = up("ant", "bee", back=0.3)
    fleet.run(200.0)
    streams = ask(fleet, client)
    skew = jump_s
    fleet.driver.clock = lambda: fleet.world.now_s + skew
    fleet.run(200.0)
    for stream in streams:
        client.result(stream)
    again = ask(fleet, client)
    fleet.run(20.0)
    for stream in again:
        client.result(stream)
    fleet.empty()


def test_a_second_process_with_one_name_is_told_busy_and_a_restarted_one_gets_in() -> None:
    fleet, [one], client = up("ant")
    other = Node(fleet, "ant", instance=2, cost=SLOW)
    fleet.run(0.5)
    assert other.closed is not None
    assert other.closed.close is Close.BUSY
    assert one.closed is None
    one.kill()
    other.back = 0.4
    other.dial()
    fleet.run(3.0)
    assert fleet.shell.book.nodes["ant"].instance == 2
    [stream] = ask(fleet, client, 1)
    fleet.run(2.0)
    client.result(stream)


def test_the_same_process_on_a_new_link_replaces_its_old_one() -> None:
    fleet, [one], client = up("ant")
    streams = ask(fleet, client, 4)
    old = one.connection
    one._forget()
    one.dial()
    fleet.run(20.0)
    for stream in streams:
        client.result(stream)
    assert one.connection is not old
    shards_suspect = fleet.shell.core.counters.failed
    assert not shards_suspect
    fleet.empty()


def test_a_stream_cut_short_is_told_so_and_one_not_begun_goes_elsewhere() -> None:
    fleet, [one, two], client = up("ant", "bee", cost=Cost(0.004, 1e-5, 2e-5))
    stream = client.open(generation(50, 4000))
    fleet.run(1.0)
    busy = one if one.leases else two
    assert busy.leases
    busy.leave()
    fleet.run(1.0)
    assert client.refusal(stream) == "lease_lost"
    fleet.empty()


def test_a_fault_of_ours_fails_one_request_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, _, client = up("ant")
    cut = fleet.shell.payloads.parts

    def broken(work: object) -> object:
        if any(part.view_from == 0 and part.view_to == 77 for part in work.parts):  # type: ignore[attr-defined]
            raise RuntimeError("not this one")
        return cut(work)  # type: ignore[arg-type]

    monkeypatch.setattr(fleet.shell.payloads, "parts", broken)
    bad = client.open(submit(77, 4, seed=5, slo="batch"))
    streams = ask(fleet, client, 3)
    fleet.run(20.0)
    for stream in streams:
        client.result(stream)
    assert client.refusal(bad) == "work_failed"
    assert fleet.shell.tally.counts.pop("faults") == 3
    fleet.empty()


def test_tokens_are_never_streamed_twice() -> None:
    """A node that gives tokens and then fails the prompt's pass: opened again they would come again."""
    fleet, [node], client = up("ant", cost=Cost(0.1, 1e-5, 1e-5))
    stream = client.open(generation(50, 100))
    fleet.run(0.02)
    [(request, lease_stream)] = node.leases.items()
    node.say(lease_stream, m.Rounds(tokens=b"\1\0\0\0"))
    node.faults.oom = 1
    fleet.run(5.0)
    assert client.refusal(stream) == "lease_lost"
    assert sum(isinstance(each, m.Rounds) for each in client.told[stream]) == 1
    assert request not in node.leases
    fleet.empty()


def test_a_fault_of_the_core_answers_everything_and_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, _, client = up("ant", "bee", back=0.3)
    streams = ask(fleet, client)
    broken = fleet.shell.core

    def fail(event: object, now_s: float) -> list[object]:
        raise RuntimeError("half-way through")

    monkeypatch.setattr(broken, "handle", fail)
    fleet.run(2.0)
    assert {client.refusal(stream) for stream in streams} == {"internal"}
    assert fleet.shell.core is not broken
    streams = ask(fleet, client)
    fleet.run(10.0)
    for stream in streams:
        client.result(stream)
    assert client.closed is None
    assert fleet.shell.tally.counts.pop("faults") == 1
    fleet.empty()


def test_one_name_does_not_keep_the_others_out() -> None:
    fleet = Fleet(Settings(max_links=64))
    for number in range(64):
        Client(fleet, instance=number)
    Node(fleet, "ant", cost=SLOW)
    fleet.run(1.0)
    assert fleet.shell.book.nodes
    assert len(fleet.shell.book) == 17
