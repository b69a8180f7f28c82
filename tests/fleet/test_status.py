"""What a dashboard reads with one call: true to the fleet, in one frame however large the fleet is."""

import pytest
from msgspec.structs import replace

from mainspring.core.cost import Cost, RoundCost
from mainspring.core.nouns import Limits
from mainspring.fleet.status import fitted
from mainspring.fleet.tally import KEPT, MAX_CODES, WINDOW_S, Ending, Tally
from mainspring.wire import messages as m
from support.fleet import Client, Fleet, Node, submit

EMPTY = m.Status(router=1, up_s=0.0, version="x")


def node(name: str, text: str = "cpu") -> m.NodeStatus:
    cost = Cost(0.0123456789012345, 1.23456789012345e-5, 1.23456789012345e-5, 1.23456789012345e-9)
    return m.NodeStatus(
        name=name, model="f" * 64, epoch=1 << 50, state="draining", numerics="fp32", cost=cost, heard_s=1 / 3,
        idle_s=1 / 3, device=text, address=text, transport="quic", note=text, alias=text, memory_bytes=1 << 50,
        memory_total_bytes=1 << 50, temperature_c=1 / 3, report_s=1 / 3, declared=cost,
        round_cost=RoundCost(1 / 3, 0.1), round_trip_s=1 / 3, held=1 << 50,
        keys=1 << 50, passes=1 << 50, failures=1 << 50, waiting=1 << 50,
    )  # fmt: skip


def test_nodes_and_classes_say_what_is_running_and_what_waits() -> None:
    fleet = Fleet()
    ant = Node(fleet, "ant", cost=Cost(1.0, 1e-6, 1e-6), limits=Limits(pass_parts=1, slots=0))
    client = Client(fleet)
    fleet.run(0.5)
    for seed in range(6):
        client.open(submit(seed=seed, slo="batch"))
    ant.say(0, m.NodeReport(waiting=3, running=True, memory_bytes=5 << 20, memory_total_bytes=9 << 20,
                            temperature_c=61.5, cache_bytes=77))  # fmt: skip
    fleet.run(0.3)
    status = client.status()
    [shown] = status.nodes
    assert (shown.waiting, shown.cache_bytes, shown.memory_bytes, shown.memory_total_bytes, shown.temperature_c) == (
        3, 77, 5 << 20, 9 << 20, 61.5,
    )  # fmt: skip
    assert (shown.alias, shown.declared, shown.held > 0) == ("tiny", ant.cost, True)
    assert shown.report_s == pytest.approx(0.3, abs=0.1)
    [batch] = [each for each in status.classes if each.name == "batch"]
    assert batch.open == status.totals.open == 6
    assert 0 < batch.queued == status.totals.queued < 6
    fleet.run(30.0)
    status = client.status()
    totals = status.totals
    assert (totals.open, totals.queued, totals.submitted, totals.answered, totals.refused) == (0, 0, 6, 6, {})
    assert (totals.passes, totals.nodes, totals.usable) == (6, 1, 1)
    assert totals.pass_tokens == sum(each.tokens for each in status.passes) > 0
    assert status.nodes[0].error_passes == 6
    fleet.empty()


def test_a_device_that_does_not_know_says_none() -> None:
    fleet = Fleet()
    Node(fleet, "ant")
    client = Client(fleet)
    fleet.run(0.5)
    [shown] = client.status().nodes
    assert (shown.memory_bytes, shown.memory_total_bytes, shown.temperature_c) == (None, None, None)


def test_totals_count_every_end_and_outlive_the_window() -> None:
    tally = Tally()
    for n in range(MAX_CODES + 20):
        tally.ended(Ending(float(n), "standard", 0.1, late=False, code=f"code{n}"))
    tally.ended(Ending(1000.0, "standard", 0.1, late=True, code=""))
    assert (tally.answered, tally.late, sum(tally.refused.values())) == (1, 1, MAX_CODES + 20)
    assert len(tally.refused) == MAX_CODES
    assert len(tally.recent(1000.0)["standard"]) == 1


def test_the_window_tells_how_far_back_it_goes_in_a_flood() -> None:
    tally = Tally()
    assert tally.window_s(5.0) == WINDOW_S
    for n in range(KEPT + 100):
        tally.ended(Ending(n * 1e-3, "standard", 0.1, late=False, code=""))
    end_s = (KEPT + 99) * 1e-3
    assert tally.window_s(end_s) == pytest.approx(KEPT * 1e-3, rel=0.01)
    assert tally.window_s(end_s) < WINDOW_S


def test_a_thousand_usual_nodes_are_all_listed() -> None:
    status = fitted(EMPTY, nodes=[node(f"node-{n:04}", "NVIDIA H200 (141 GiB, triton 3.6)") for n in range(1000)])
    assert len(status.nodes) == 1000
    assert status.omitted == {}
    assert len(m.encode(status)) < m.Status.cap


def test_the_largest_of_everything_fits_one_frame_and_says_what_it_left_out() -> None:
    wide = "\U0001f40c" * m.TEXT_CHARS
    name = "\U0001f40c" * 128
    models = [
        m.ModelStatus(model=name, aliases=(name,) * 64, bundle=name, limits=Limits(), numerics=("fp32",) * 4)
        for _ in range(300)
    ]
    codes = {name[:-2] + f"{n:02}": 1 << 50 for n in range(64)}
    classes = [m.ClassStatus(name=name, priority=1, refused=codes) for _ in range(64)]
    passes = [
        m.PassStatus(node=name, pass_id=n, ago_s=1 / 3, predicted_s=1 / 3, measured_s=1 / 3, parts=1 << 50, tokens=1)
        for n in range(1200)
    ]
    nodes = [replace(node(name, wide), alias=name) for _ in range(2000)]
    counters = {name[:-3] + f"{n:03}": 1 / 3 for n in range(256)}
    whole = replace(EMPTY, counters=counters, totals=m.Totals(refused=codes))
    status = fitted(whole, models=models, nodes=nodes, classes=classes, passes=passes)
    frame = m.encode(status)
    assert m.decode(frame[4], frame[8:]) == status
    assert len(frame) < m.Status.cap
    for field, all_of_it in (("models", models), ("nodes", nodes), ("passes", passes)):
        assert status.omitted[field] == len(all_of_it) - len(getattr(status, field)) > 0
    assert status.passes[-1].pass_id == 1199, "the last ones"


def test_texts_of_a_node_are_cut() -> None:
    fleet = Fleet()
    Node(fleet, "ant", device="x" * 2000)
    client = Client(fleet)
    fleet.run(0.5)
    assert len(client.status().nodes[0].device) == m.TEXT_CHARS
