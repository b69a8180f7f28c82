"""The router's shell with real links and virtual nodes: a request's way there and back, limits, refusals, drain."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from mainspring.core.cost import Cost
from mainspring.core.nouns import Limits
from mainspring.fleet.admission import ModelRule
from mainspring.fleet.bundles import BundleCache
from mainspring.fleet.payloads import Payloads
from mainspring.fleet.settings import Settings
from mainspring.wire import messages as m
from mainspring.wire.errors import Close
from support.fleet import Client, Fleet, Node, generation, known_as, submit, words


def up(*nodes: dict[str, object], settings: Settings | None = None) -> tuple[Fleet, list[Node], Client]:
    fleet = Fleet(settings)
    made = [Node(fleet, **{"name": f"ant{i}", **fields}) for i, fields in enumerate(nodes)]  # type: ignore[arg-type]
    client = Client(fleet)
    fleet.run(0.5)
    return fleet, made, client


def test_a_score_comes_back_in_branch_order() -> None:
    fleet, [node], client = up({})
    stream = client.open(submit(300, 7))
    fleet.run(1.0)
    result = client.result(stream)
    assert isinstance(client.told[stream][0], m.Accepted)
    assert (result.nodes, result.passes, result.retries, result.cached_tokens) == (("ant0",), 1, 0, 0)
    assert result.device_s == pytest.approx(node.cost.seconds(300, 56))
    assert result.total_s >= result.device_s
    fleet.empty()


def test_many_requests_at_once_are_each_answered_with_their_own_logits() -> None:
    fleet, _, client = up({}, {"cost": Cost(0.02, 1e-4, 1e-4)})
    streams = [client.open(submit(50 + 7 * i, 1 + i % 5, seed=i, slo="batch")) for i in range(60)]
    fleet.run(30.0)
    for stream in streams:
        client.result(stream)
    fleet.empty()


def test_a_view_too_long_for_a_pass_is_scanned_in_chunks() -> None:
    fleet, [node], client = up({"limits": Limits(pass_tokens=300)})
    stream = client.open(submit(1000, 40, slo="batch"))
    fleet.run(10.0)
    assert client.result(stream).passes >= 4
    assert node.scans == ["gate.2.4/0"], "once from the beginning, then on from its own end"
    assert not node.half
    fleet.empty()


def test_a_view_with_a_key_is_scanned_once_and_found_again() -> None:
    fleet, [node], client = up({})
    first = client.open(submit(2000, 4, seed=1, view_key="v"))
    fleet.run(1.0)
    again = client.open(submit(2000, 4, seed=1, view_key="v"))
    fleet.run(1.0)
    client.result(first)
    assert client.result(again).cached_tokens == 2000
    assert node.scans == [known_as("v")]
    fleet.empty()


def test_requests_of_one_view_in_one_pass_share_its_scan() -> None:
    fleet, [node], client = up({})
    client.open(submit(3000, 200, seed=9, slo="batch"))  # busy: what follows waits and shares a pass
    one = submit(2000, 4, seed=1, view_key="v", slo="batch")
    streams = [client.open(one) for _ in range(5)]
    fleet.run(5.0)
    for stream in streams:
        client.result(stream)
    assert node.scans.count(known_as("v")) == 1
    assert any(part.parent >= 0 for work in node.log for part in work.parts)
    fleet.empty()


def test_another_view_under_a_key_in_use_is_refused() -> None:
    fleet, _, client = up({})
    first = client.open(submit(2000, 4, seed=1, view_key="v"))
    other = client.open(submit(2000, 4, seed=2, view_key="v"))
    fleet.run(1.0)
    client.result(first)
    assert client.refusal(other) == "bad_shape"
    fleet.empty()


def test_a_generation_streams_its_tokens_and_ends() -> None:
    fleet, [node], client = up({})
    stream = client.open(generation(50, 45))
    fleet.run(2.0)
    rounds = [each for each in client.told[stream] if isinstance(each, m.Rounds)]
    assert b"".join(each.tokens for each in rounds) == words(*range(45))
    end = client.ends[stream]
    assert isinstance(end, m.LeaseEnded)
    assert (end.finish, end.tokens) == ("length", 45)
    assert not node.leases
    fleet.empty()


def test_a_prompt_that_no_message_holds_is_refused_with_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.fleet.work.LEASE_ROOM", m.OpenLease.cap - 160)
    fleet, [node], client = up({"limits": Limits(slots=1)})
    stream = client.open(generation(prompt=41))
    fleet.run(1.0)
    assert client.refusal(stream) == "too_large"
    told = client.told[stream][-1]
    assert "prompt: 41 tokens, and at most 40" in repr(told)
    assert node.closed is None


def test_more_tokens_than_a_lease_has_room_for_are_refused_and_harm_no_node() -> None:
    fleet, [node], client = up({"limits": Limits(slots=1)})
    stream = client.open(generation(tokens=1 << 30))
    fleet.run(1.0)
    assert client.refusal(stream) == "too_large"
    assert node.closed is None
    fleet.empty()


def test_a_cancelled_generation_is_taken_back_from_the_node() -> None:
    fleet, [node], client = up({})
    stream = client.open(generation(50, 4000))
    fleet.run(1.0)
    assert node.leases
    client.cancel(stream)
    fleet.run(1.0)
    assert client.refusal(stream) == "cancelled"
    assert not node.leases
    fleet.empty()


def test_a_cancelled_score_is_dropped_and_answered_so() -> None:
    fleet, [node], client = up({"cost": Cost(0.5, 1e-4, 1e-4)})
    streams = [client.open(submit(seed=i, slo="batch")) for i in range(6)]
    fleet.run(0.05)
    for stream in streams:
        client.cancel(stream)
    fleet.run(5.0)
    assert {client.refusal(stream) for stream in streams} == {"cancelled"}
    assert len(node.log) <= 2
    fleet.empty()


def test_nobody_works_for_a_client_whose_link_is_gone() -> None:
    fleet, [node], client = up({"cost": Cost(0.5, 1e-4, 1e-4)})
    for i in range(6):
        client.open(submit(seed=i, slo="batch"))
    fleet.run(0.05)
    client.leave()
    fleet.run(5.0)
    assert len(node.log) <= 2
    fleet.empty()


@pytest.mark.parametrize(
    ("asked", "code", "status"),
    [
        (submit(model="other"), "unknown_model", 404),
        (submit(slo="nobody's"), "bad_shape", 400),
        (submit(branches=0), "bad_shape", 400),
        (submit(view=0), "bad_shape", 400),
        (generation(sampling=None), "bad_shape", 400),
        (submit(deadline_s=0.0), "deadline_passed", 429),
        (submit(numerics=("q4",)), "no_node", 503),
        (submit(view=20_000), "too_large", 413),
    ],
)
def test_what_can_not_be_done_is_refused_with_a_code(asked: m.Submit, code: str, status: int) -> None:
    fleet, _, client = up({"limits": Limits(view_tokens=10_000, slots=1)})
    stream = client.open(asked)
    fleet.run(1.0)
    end = client.ends[stream]
    assert isinstance(end, m.Refused)
    assert (end.code, end.status) == (code, status)
    fleet.empty()


def test_tokens_beyond_the_byte_cap_are_contention_that_names_the_limit() -> None:
    fleet, _, client = up({"cost": Cost(0.5, 1e-4, 1e-4)}, settings=Settings(payload_bytes=20_000))
    streams = [client.open(submit(500, 2, seed=i, slo="batch")) for i in range(8)]
    fleet.run(20.0)
    ends = [client.ends[stream] for stream in streams]
    refused = [end for end in ends if isinstance(end, m.Refused)]
    assert 0 < len(refused) < 8
    assert {(end.code, end.status) for end in refused} == {("router_full", 429)}
    assert all("20,000" in end.message and end.retry_after_s for end in refused)
    fleet.empty()


def test_what_an_open_request_keeps_is_counted() -> None:
    """A view that many share is kept once; keys and a grammar are weighed like tokens."""
    held = Payloads()
    first = submit(5000, 1, view_key="v")
    held.add("a", first, "tiny")
    alone = held.held_bytes
    again = held.add("b", submit(5000, 1, view_key="v"), "tiny")
    assert held.held_bytes - alone < 20_000
    assert again.view is first.view_tokens
    assert not again.submit.view_tokens
    keys = tuple((f"{number:064d}", number + 1) for number in range(4096))
    for name, fields in (("c", {"prefix_keys": keys}), ("d", {"sampling": m.Sampling(grammar="x" * 100_000)})):
        before = held.held_bytes
        held.add(name, submit(10, 1, **fields), "tiny")
        assert held.held_bytes - before > 100_000
    for name in "abcd":
        held.release(name)
    assert held.held_bytes == 0


def test_a_pinned_alias_and_its_numerics() -> None:
    rules = {"tiny": ModelRule(model="key2", numerics=("fp32", "bf16")), "strict": ModelRule("key2", ("bf16",))}
    fleet, [old, new], client = up({"model": "key1"}, {"model": "key2"}, settings=Settings(models=rules))
    streams = [client.open(submit(seed=i)) for i in range(3)]
    strict = client.open(submit(seed=7, model="strict"))
    empty = client.open(submit(seed=8, model="strict", numerics=("fp32",)))
    fleet.run(1.0)
    for stream in streams:
        client.result(stream)
    assert len(new.log) >= 1
    assert not old.log
    assert client.refusal(strict) == "no_node"
    assert client.refusal(empty) == "bad_shape"


@pytest.mark.parametrize(
    "fields",
    [
        {"cost": Cost(0.0, 0.0, 0.0)},
        {"cost": Cost(float("nan"), 1.0, 1.0)},
        {"limits": Limits(pass_tokens=0)},
        {"limits": Limits(pass_tokens=1 << 30)},
        {"limits": Limits(pass_parts=5000)},
        {"busy_neighbour": 100.0},
        {"bundle_bytes": 10},
    ],
)
def test_an_offer_that_can_not_be_used_is_declined_and_the_link_stays(fields: dict[str, object]) -> None:
    fleet, [node], client = up(fields)
    if "bundle_bytes" in fields:
        assert node.closed is not None, "more came than was offered"
        return
    if node.closed is not None:  # NaN does not even pass the codec's bounds
        assert node.closed.close is Close.PROTOCOL
        return
    assert [each.code for each in node.declined] in (["bad_cost"], ["bad_node"])
    stream = client.open(submit())
    fleet.run(1.0)
    assert client.refusal(stream) == "unknown_model"
    node.cost, node.limits, node.fields = Cost(0.01, 1e-5, 1e-5), Limits(), {**node.fields, "busy_neighbour": 1.0}
    node.on_join()
    fleet.run(1.0)
    stream = client.open(submit())
    fleet.run(1.0)
    client.result(stream)


def test_refined_constants_reach_the_core() -> None:
    fleet, [node], client = up({})
    node.say(0, m.NodeReport(cost=Cost(0.2, 1e-5, 1e-5), provisional=False))
    fleet.run(0.1)
    stream = client.open(submit())
    fleet.run(0.1)
    accepted = client.told[stream][0]
    assert isinstance(accepted, m.Accepted)
    assert accepted.predicted_s > 0.2
    node.say(0, m.NodeReport(cost=Cost(0.0, 0.0, 0.0)))
    fleet.run(3.0)
    client.result(stream)


def test_a_drained_router_answers_what_is_in_and_refuses_what_comes() -> None:
    fleet, [node], client = up({"cost": Cost(0.3, 1e-5, 1e-5)})
    streams = [client.open(submit(seed=i, slo="batch")) for i in range(3)]
    fleet.run(0.01)
    fleet.shell.drain(30.0, fleet.world.now_s)
    fleet.driver.arm()
    late = client.open(submit(seed=9))
    fleet.run(3.0)
    for stream in streams:
        client.result(stream)
    assert client.refusal(late) == "draining"
    assert fleet.shell.done
    assert client.closed is not None
    assert client.closed.orderly
    assert node.closed is not None
    assert node.closed.orderly
    fleet.empty()


def test_goodbyes_of_a_drained_router_go_out_with_the_last_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """They lay there until something else happened, and the endpoints closed before that."""
    fleet, _, client = up({"cost": Cost(0.3, 1e-5, 1e-5)})
    stream = client.open(submit())
    fleet.run(0.01)
    fleet.shell.drain(30.0, fleet.world.now_s)
    fleet.driver.arm()
    closes: list[Close] = []
    for peer in fleet.shell.book.peers:
        monkeypatch.setattr(peer.connection, "close", lambda close, _message: closes.append(close))
    seen_done = []
    real = fleet.shell.received

    def received(*data: object) -> None:
        real(*data)  # type: ignore[arg-type]
        if fleet.shell.done and not seen_done:
            seen_done.append([*closes])

    monkeypatch.setattr(fleet.shell, "received", received)
    fleet.run(1.0)
    client.result(stream)
    assert seen_done == [[Close.DRAINED] * 2]


def test_a_drain_that_takes_too_long_refuses_the_rest() -> None:
    fleet, _, client = up({"cost": Cost(10.0, 1e-5, 1e-5)})
    streams = [client.open(submit(seed=i, slo="batch")) for i in range(3)]
    fleet.run(0.01)
    fleet.shell.drain(2.0, fleet.world.now_s)
    fleet.driver.arm()
    fleet.run(3.0)
    assert {client.refusal(stream) for stream in streams} == {"draining"}
    assert fleet.shell.done
    fleet.empty()


def test_a_draining_node_finishes_and_gets_no_more() -> None:
    fleet, [one, two], client = up({"cost": Cost(0.2, 1e-5, 1e-5)}, {"cost": Cost(0.2, 1e-5, 1e-5)})
    streams = [client.open(submit(seed=i, slo="batch")) for i in range(8)]
    fleet.run(0.01)
    held = len(one.log)
    one.say(0, m.Drain())
    fleet.run(5.0)
    for stream in streams:
        client.result(stream)
    assert len(one.log) == held
    assert two.log
    fleet.empty()


def test_bundles_are_fetched_once_and_handed_to_clients() -> None:
    fleet, [node, _], client = up({}, {})
    data = node.bundle
    [model] = client.status().models
    stream = client.open(m.FetchBundle(bundle=model.bundle))
    nothing = client.open(m.FetchBundle(bundle="unheard-of"))
    fleet.run(1.0)
    pieces = [each.data for each in client.told[stream] if isinstance(each, m.BundleData)]
    assert b"".join(pieces) == data
    end = client.ends[nothing]
    assert isinstance(end, m.BundleEnd)
    assert not end.found


def test_a_folder_that_can_not_be_made_leaves_bundles_in_memory(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    bundles = BundleCache(tmp_path / "state" / "bundles", check=lambda _name, _data: None)
    packed = bundles.admit("b", b"packed", size=6, sha256=hashlib.sha256(b"packed").hexdigest())
    assert packed.data == b"packed"
    assert bundles.load("b") is None


def test_status_tells_the_truth() -> None:
    fleet, [node], client = up({"cost": Cost(0.2, 1e-5, 1e-5), "device": "toaster"})
    streams = [client.open(submit(seed=i, slo="batch")) for i in range(5)]
    fleet.run(0.1)
    status = client.status()
    [state] = status.nodes
    assert (state.name, state.state, state.device, state.transport) == ("ant0", "busy", "toaster", "memory")
    assert status.models[0].aliases == ("tiny",)
    assert status.counters["open"] == 5
    assert status.payload_bytes > 0
    fleet.run(5.0)
    for stream in streams:
        client.result(stream)
    status = client.status()
    assert status.nodes[0].state == "ready"
    batch = next(each for each in status.classes if each.name == "batch")
    assert batch.answered == 5
    assert batch.p99_s >= 0.2
    assert len(status.passes) >= 1
    node.kill()
    fleet.run(4.0)
    assert client.status().nodes[0].state == "late"
    fleet.run(4.0)
    assert not client.status().nodes


def test_logits_are_little_endian_floats() -> None:
    fleet, _, client = up({})
    stream = client.open(submit(branches=2))
    fleet.run(1.0)
    values = m.f32(client.result(stream).logits)
    assert values.shape == (6,)
    assert np.isfinite(values).all()


def test_passes_that_do_not_fit_in_a_frame_together_are_sent_apart() -> None:
    """Two requests of three million labels each: 12 MB and 12 MB, a frame has 16 MiB."""
    fleet, [node], client = up({"cost": Cost(0.3, 1e-6, 1e-6)})
    first = client.open(submit(slo="batch"))
    fleet.run(0.01)
    big = [
        m.Submit(
            request=f"b{i}", model="tiny", slo="batch", view_tokens=words(*range(10 + i)),
            branch_lengths=words(*[1] * 3000), branch_tokens=words(*range(3000)), label_counts=words(*[1000] * 3000),
            label_ids=np.tile(np.arange(1000, dtype="<u4"), 3000).tobytes(),
        )
        for i in range(2)
    ]  # fmt: skip
    node.hashes = False
    streams = [client.open(each) for each in big]
    fleet.run(20.0)
    assert isinstance(client.ends[first], m.Result)
    for stream in streams:
        end = client.ends[stream]
        assert isinstance(end, m.Result)
        assert len(end.logits) == 12_000_000
    fleet.empty()


def test_work_is_held_back_from_a_connection_that_is_full() -> None:
    """A pass of 4.8 MB waits in the network; the next one is not put behind it, and goes when the first is through."""
    limits = Limits(pass_tokens=2_000_000, view_tokens=2_000_000)
    fleet, [node], client = up({"limits": limits, "cost": Cost(0.05, 1e-8, 1e-8)})
    node.network.cut()
    big = client.open(submit(1_200_000, 2, slo="batch"))
    fleet.run(0.01)
    small = client.open(submit(100, 2, seed=2, slo="batch"))
    fleet.run(0.1)
    peer = fleet.shell.book.nodes["ant0"]
    assert len(peer.held_back) == 1
    assert len(peer.streams) == 1
    node.network.heal()
    fleet.run(10.0)
    client.result(big)
    client.result(small)
    assert not peer.held_back
    fleet.empty()
