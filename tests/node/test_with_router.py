"""Real nodes under the real router's shell: memory links, virtual time; null devices, then a small real model."""

import numpy as np
import pytest

from mainspring.backend.protocol import Limits
from mainspring.backend.torch_cpu import TorchBackend
from mainspring.core.cost import Cost
from mainspring.core.nouns import Limits as Offered
from mainspring.engine import Branch, Engine, Work
from mainspring.wire import messages as m
from support.fleet import Client, Fleet, known_as
from support.models import random_tokens, tiny_model
from support.nodes import NodeRig, expected, null_backend, words

VIEW = b"v" + known_as("v").encode()
"""What a node's store calls the view that the client calls v."""
COST = Cost(0.01, 1e-4, 1e-3)


def fleet_of(*rigs: dict[str, object]) -> tuple[Fleet, list[NodeRig], Client]:
    fleet = Fleet(check=lambda _name, _data: None)  # their bundle goes by any name
    nodes = [NodeRig(world=fleet.world, name=f"ant{i}", cost=COST, **fields) for i, fields in enumerate(rigs)]  # type: ignore[arg-type]
    for node in nodes:
        node.dial(fleet.driver.accept)
    client = Client(fleet)
    fleet.run(1.0)
    return fleet, nodes, client


def ask(view: np.ndarray, branches: list[np.ndarray], labels: tuple[int, ...] = (1, 2), **fields: object) -> m.Submit:
    return m.Submit(
        request="r", model="tiny", view_tokens=words(view), branch_lengths=words([len(b) for b in branches]),
        branch_tokens=words(np.concatenate(branches)), label_counts=words([len(labels)] * len(branches)),
        label_ids=words(list(labels) * len(branches)), **{"slo": "standard", **fields},
    )  # type: ignore[arg-type]  # fmt: skip


def result(client: Client, stream: int) -> m.Result:
    end = client.ends[stream]
    assert isinstance(end, m.Result), end
    return end


def questions(count: int, rows: int, vocab: int = 300) -> list[np.ndarray]:
    return [random_tokens(100 + i, rows, vocab=vocab).numpy() for i in range(count)]


def test_a_request_over_two_nodes_scans_its_view_once_on_each() -> None:
    fleet, nodes, client = fleet_of({}, {})
    view, asked = np.arange(500) % 300, questions(300, 10)
    stream = client.open(ask(view, asked, view_key="v"))
    fleet.run(20.0)
    got = result(client, stream)
    assert np.array_equal(m.f32(got.logits), expected(view, asked))
    assert sorted(got.nodes) == ["ant0", "ant1"]
    canaries = [104 * sum(len(job[0].tokens) == 64 for job in node.worker.ran) for node in nodes]
    scanned = [node.engine.rows - canary for node, canary in zip(nodes, canaries, strict=True)]
    assert sum(scanned) == 2 * 500 + 3000
    assert all(node.engine.store.listing() == [(VIEW, 500)] for node in nodes)
    fleet.empty()


def test_a_long_view_comes_in_chunks_and_leaves_nothing_half() -> None:
    limited = {"offered": Offered(pass_tokens=300)}
    fleet, [node], client = fleet_of(limited)
    view, asked = np.arange(1000) % 300, questions(40, 10)
    streams = [client.open(ask(view, asked, slo="batch", **fields)) for fields in ({}, {"view_key": "v"})]
    fleet.run(60.0)
    for stream in streams:
        assert np.array_equal(m.f32(result(client, stream).logits), expected(view, asked))
        assert result(client, stream).passes >= 4
    assert node.engine.store.listing() == [(VIEW, 1000)]
    assert node.engine.store.held == node.scheduler.views.half_scanned == 0
    fleet.empty()


def test_a_router_that_restarts_finds_the_nodes_and_their_views() -> None:
    fleet, [node], client = fleet_of({})
    view, asked = np.arange(400) % 300, questions(5, 10)
    stream = client.open(ask(view, asked, view_key="v"))
    fleet.run(2.0)
    result(client, stream)
    fleet.crash()
    fleet.run(1.0)
    assert node.ended
    node.dial(fleet.driver.accept)
    client = Client(fleet, instance=8)
    fleet.run(1.0)
    before = node.engine.rows
    stream = client.open(ask(view, asked, view_key="v"))
    fleet.run(2.0)
    got = result(client, stream)
    assert got.cached_tokens == 400
    assert node.engine.rows - before == 50
    assert np.array_equal(m.f32(got.logits), expected(view, asked))


def test_evicted_views_are_scanned_again_and_every_request_is_answered() -> None:
    """Room for three views of ten that take turns."""
    fleet, [node], client = fleet_of({"cache_bytes": 3 * 200 * 4096})
    asked = questions(3, 10)
    streams: list[tuple[int, np.ndarray]] = []
    for turn in range(40):
        view = (np.arange(200) + turn * 7 % 10) % 300
        streams.append((client.open(ask(view, asked, view_key=f"v{turn * 7 % 10}", slo="batch")), view))
        fleet.run(0.02)
    fleet.run(60.0)
    for stream, view in streams:
        assert np.array_equal(m.f32(result(client, stream).logits), expected(view, asked))
    assert node.engine.store.evictions > 5
    assert node.engine.store.held == 0
    fleet.empty()


def test_a_node_that_answers_nan_once_costs_a_retry() -> None:
    fleet, [node], client = fleet_of({})
    real, bad = node.engine.backend.score_pass, [True]

    def nan_once(work):
        done = real(work)
        return type(done)(done.logits * np.float32("nan"), done.states, done.seconds) if bad and bad.pop() else done

    node.engine.backend.score_pass = nan_once
    view, asked = np.arange(100), questions(3, 10)
    stream = client.open(ask(view, asked))
    fleet.run(10.0)
    got = result(client, stream)
    assert np.array_equal(m.f32(got.logits), expected(view, asked))
    assert got.retries >= 1


def test_a_full_device_fails_the_pass_and_not_the_node() -> None:
    fleet, [node], client = fleet_of({})
    real, bad = node.engine.backend.score_pass, [True]

    def full_once(work):
        if bad and bad.pop():
            raise MemoryError
        return real(work)

    node.engine.backend.score_pass = full_once
    view, asked = np.arange(100), questions(3, 10)
    stream = client.open(ask(view, asked))
    fleet.run(10.0)
    assert np.array_equal(m.f32(result(client, stream).logits), expected(view, asked))
    assert not node.ended


def test_a_lease_is_refused_by_a_node_that_does_not_generate() -> None:
    fleet, _, client = fleet_of({})
    stream = client.open(m.Submit(request="g", model="tiny", slo="standard", view_tokens=words(range(20)),
                                  max_tokens=5, sampling=m.Sampling()))  # fmt: skip
    fleet.run(5.0)
    assert isinstance(client.ends[stream], m.Refused)


def softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def real() -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """(view of 500 tokens, 300 behaviours, their probabilities [300, 3] by one engine in one call)."""
    view, asked = random_tokens(1, 500).numpy(), questions(300, 6)
    ids = np.array([10, 20, 30])
    work = Work(view, tuple(Branch(tokens, ids) for tokens in asked))
    rows = Engine(TorchBackend(tiny_model()), cache_bytes=0).score([work])[0]
    return view, asked, softmax(np.stack(rows).astype(np.float64))


def torch_backend() -> TorchBackend:
    backend = TorchBackend(tiny_model())
    backend.limits = Limits(32_768, 65_536, 300)
    return backend


def test_three_hundred_behaviours_over_two_nodes_are_those_of_one_engine(real) -> None:
    view, asked, wanted = real
    fleet, nodes, client = fleet_of({"backend": torch_backend()}, {"backend": torch_backend()})
    stream = client.open(ask(view, asked, (10, 20, 30), view_key="v"))
    fleet.run(30.0)
    got = result(client, stream)
    assert sorted(got.nodes) == ["ant0", "ant1"]
    probabilities = softmax(m.f32(got.logits).astype(np.float64).reshape(300, 3))
    assert np.abs(probabilities - wanted).max() < 1e-5
    for node in nodes:
        assert node.engine.store.listing() == [(VIEW, 500)]
        assert node.scheduler.views.half_scanned == 0


def test_a_real_view_in_chunks_gives_the_same_probabilities(real) -> None:
    view, asked, wanted = real
    fleet, [node], client = fleet_of({"backend": torch_backend(), "offered": Offered(pass_tokens=160)})
    stream = client.open(ask(view, asked[:30], (10, 20, 30), slo="batch"))
    fleet.run(60.0)
    got = result(client, stream)
    assert got.passes >= 4
    probabilities = softmax(m.f32(got.logits).astype(np.float64).reshape(30, 3))
    assert np.abs(probabilities - wanted[:30]).max() < 1e-5
    assert len(node.engine.store) == 0


def test_the_check_sees_another_view(real) -> None:
    view, asked, wanted = real
    other = Work(view[::-1].copy(), tuple(Branch(tokens, np.array([10, 20, 30])) for tokens in asked[:5]))
    rows = Engine(torch_backend(), cache_bytes=0).score([other])[0]
    assert np.abs(softmax(np.stack(rows).astype(np.float64)) - wanted[:5]).max() > 1e-3


def test_a_slow_node_gets_its_share() -> None:
    """Ten times slower and honest about it: a tenth of the work, give or take."""
    fleet = Fleet(check=lambda _name, _data: None)  # their bundle goes by any name
    slow_cost = Cost(0.1, 1e-3, 1e-2)
    nodes = [
        NodeRig(null_backend(), world=fleet.world, name="fast", cost=COST),
        NodeRig(null_backend(), world=fleet.world, name="slow", cost=slow_cost),
    ]
    for node in nodes:
        node.dial(fleet.driver.accept)
    client = Client(fleet)
    fleet.run(1.0)
    asked = questions(4, 10)
    streams = [client.open(ask((np.arange(100) + i) % 300, asked, slo="batch")) for i in range(200)]
    fleet.run(60.0)
    for stream in streams:
        result(client, stream)
    rows = [node.engine.rows for node in nodes]
    assert 0.03 < rows[1] / sum(rows) < 0.2


def test_a_view_that_went_costs_its_own_request_a_second_pass_and_the_others_none() -> None:
    fleet, [node], client = fleet_of({})
    kept, other, asked = np.arange(400) % 300, np.arange(300, 0, -1) - 1, questions(2, 10)
    first = client.open(ask(kept, asked, view_key="v"))
    fleet.run(2.0)
    result(client, first)
    client.open(ask(np.arange(200), questions(100, 10), slo="batch"))  # busy: the next two wait and share a pass
    streams = [client.open(ask(kept, asked, view_key="v", slo="batch")), client.open(ask(other, asked, slo="batch"))]
    node.engine.store.drop(VIEW)
    node.engine.store.changes()  # and nobody is told
    fleet.run(30.0)
    for stream, view in zip(streams, (kept, other), strict=True):
        assert np.array_equal(m.f32(result(client, stream).logits), expected(view, asked))
    assert [result(client, stream).retries for stream in streams] == [1, 0]
    assert fleet.shell.tally.counts["failed_view_missing"] == 1
    fleet.empty()
