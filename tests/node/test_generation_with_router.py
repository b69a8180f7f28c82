"""Streams through the real router's shell and real nodes: memory links, virtual time, the null device's slots."""

import numpy as np
import pytest
from msgspec.structs import replace

from mainspring.core.cost import Cost, RoundCost
from mainspring.core.nouns import DEFAULT_CLASSES
from mainspring.engine.sampling import Sampling
from mainspring.engine.stream_records import Constraint
from mainspring.fleet.settings import Settings
from mainspring.simulate.simulation import NodePlan, Simulation
from mainspring.simulate.vnode import Truth
from mainspring.simulate.workload import Trace
from mainspring.text.grammar import GrammarError
from mainspring.wire import messages as m
from node.test_leases import written
from node.test_with_router import ask as score_of
from node.test_with_router import questions
from router_rig import generate, measured
from router_rig import node as spec
from support.fleet import Client, Fleet
from support.nodes import NodeRig, null_backend, words

COST = Cost(0.01, 1e-4, 1e-3)
ROUND = RoundCost(0.01, 0.002)


def fleet_of(*rigs: dict[str, object], settings: Settings | None = None) -> tuple[Fleet, list[NodeRig], Client]:
    fleet = Fleet(settings, check=lambda _name, _data: None)
    nodes = [
        NodeRig(
            null_backend((COST.c0, COST.c1, COST.c2)), world=fleet.world, name=f"ant{i}", known=True,
            **{"slots": 4, "round_cost": ROUND, **fields},
        )  # type: ignore[arg-type]
        for i, fields in enumerate(rigs)
    ]  # fmt: skip
    for node in nodes:
        node.probe.adopt(COST, measured(COST))
        node.dial(fleet.driver.accept)
    client = Client(fleet)
    fleet.run(1.0)
    return fleet, nodes, client


def ask(prompt: list[int], tokens: int = 30, slo: str = "standard", **fields: object) -> m.Submit:
    fields.setdefault("sampling", m.Sampling(temperature=0.0, drafter="none"))
    return m.Submit(
        request="r",
        model="tiny",
        slo=slo,
        view_tokens=words(prompt),
        max_tokens=tokens,
        **fields,  # type: ignore[arg-type]
    )


def told(client: Client, stream: int) -> list[int]:
    every = [each for each in client.told[stream] if isinstance(each, m.Rounds)]
    return [token for each in every for token in m.u32(each.tokens).tolist()]


def end(client: Client, stream: int) -> m.LeaseEnded:
    last = client.ends[stream]
    assert isinstance(last, m.LeaseEnded), last
    return last


def score(seed: int) -> m.Submit:
    return score_of(np.asarray(prompt_of(seed)), questions(2, 5), slo="batch")


def prompt_of(seed: int, count: int = 200) -> list[int]:
    return np.random.default_rng(seed).integers(0, 300, count).tolist()  # type: ignore[no-any-return]


def clean(fleet: Fleet, nodes: list[NodeRig]) -> None:
    fleet.empty()
    for node in nodes:
        assert not len(node.scheduler.leases)
        fleet.run(0.1)
        assert node.streams is not None
        assert node.streams.free_slots == node.streams.backend.limits.slots


def test_streams_over_two_nodes_say_what_each_would_alone() -> None:
    fleet, nodes, client = fleet_of({}, {})
    prompts = [prompt_of(seed) for seed in range(8)]
    streams = [client.open(ask(prompt, 40)) for prompt in prompts]
    fleet.run(10.0)
    for stream, prompt in zip(streams, prompts, strict=True):
        assert told(client, stream) == written(prompt, 40)
        last = end(client, stream)
        assert (last.finish, last.tokens, last.rounds, last.retries) == ("length", 40, 40, 0)
        assert 0.0 < last.queue_s < last.first_s < last.total_s
    assert {end(client, stream).node for stream in streams} == {"ant0", "ant1"}
    clean(fleet, nodes)


def test_a_burst_of_greedy_and_sampled_streams_beside_scores_says_what_each_would_alone() -> None:
    fleet, nodes, client = fleet_of({}, {})
    asked = []
    for index in range(8):
        how = m.Sampling(
            temperature=index % 2 * 1.0, seed=None if index == 7 else index, drafter="ngram", top_logprobs=2
        )
        asked.append((client.open(ask(prompt_of(index // 2), 40, sampling=how)), index))
    scores = [client.open(score(index)) for index in range(6)]
    fleet.run(20.0)
    texts = {}
    for stream, index in asked:
        seed = 7 if index == 7 else index  # what the node draws where nothing is said
        how = Sampling(temperature=index % 2 * 1.0, seed=seed)
        texts[index] = told(client, stream)
        assert texts[index] == written(prompt_of(index // 2), 40, sampling=how)
        rounds = [each for each in client.told[stream] if isinstance(each, m.Rounds)]
        assert all(len(each.logprobs) == len(each.tokens) == len(each.top_ids) // 2 for each in rounds)
    assert len({tuple(text) for text in texts.values()}) == 8
    assert all(isinstance(client.ends[stream], m.Result) for stream in scores)
    clean(fleet, nodes)


def test_a_long_prompt_is_cut_on_the_grid_beside_a_stream_that_keeps_its_rate() -> None:
    fleet, [node], client = fleet_of({})
    first = client.open(ask(prompt_of(1), 600, "interactive"))
    fleet.run(0.5)
    prompt = prompt_of(2, 5011)
    came: list[float] = []
    second = client.open(ask(prompt, 20))
    seen = len(told(client, first))
    while second not in client.ends:
        fleet.run(0.005)
        if len(told(client, first)) > seen:
            seen = len(told(client, first))
            came.append(fleet.world.now_s)
        assert fleet.world.now_s < 60.0
    assert told(client, second) == written(prompt, 20)
    gaps = np.diff(came)
    assert gaps.max() <= 0.1 + 0.012, "the promised gap, a round and a step of this clock"
    chunks = [chunk for task in node.worker.tasks for chunk in task.chunks if len(chunk.spec.tokens) == 5011]
    assert len(chunks) > 4
    assert all(chunk.to % 64 == 0 for chunk in chunks[:-1])
    fleet.run(60.0)
    assert told(client, first) == written(prompt_of(1), 600)
    clean(fleet, [node])


def test_a_follow_up_goes_to_the_node_that_holds_its_beginning_and_scans_only_what_is_new() -> None:
    fleet, nodes, client = fleet_of({}, {})
    prompt = prompt_of(1, 640)
    first = client.open(ask(prompt, 5, prefix_keys=(("turn1", 640),), view_key="end1"))
    fleet.run(3.0)
    holder = end(client, first).node
    [node] = [node for node in nodes if node.who.name == holder]
    assert node.streams is not None
    before = node.streams.stats.prefilled
    longer = prompt + prompt_of(2, 60)
    second = client.open(ask(longer, 5, prefix_keys=(("turn1", 640), ("turn2", 700))))
    fleet.run(3.0)
    last = end(client, second)
    assert (last.node, last.cached_tokens) == (holder, 640)
    assert node.streams.stats.prefilled - before == 60
    assert told(client, second) == written(longer, 5)
    again = client.open(ask(prompt, 5, prefix_keys=(("turn1", 640),), view_key="end1"))
    fleet.run(3.0)
    assert (end(client, again).cached_tokens, node.streams.stats.prefilled - before) == (640, 60)
    assert told(client, again) == told(client, first)
    clean(fleet, nodes)


def test_prompts_of_two_realms_share_nothing() -> None:
    fleet, [node], client = fleet_of({})
    stranger = Client(fleet, "other", instance=9, realm="elsewhere")
    fleet.run(0.5)
    asked = ask(prompt_of(1), 5, view_key="end")
    mine = client.open(asked)
    fleet.run(2.0)
    theirs = stranger.open(asked)
    again = client.open(asked)
    fleet.run(2.0)
    assert end(client, mine).cached_tokens == 0
    assert end(stranger, theirs).cached_tokens == 0
    assert end(client, again).cached_tokens == 200
    clean(fleet, [node])


@pytest.mark.parametrize("how", ["cut", "crash"])
def test_a_node_that_goes_away_ends_begun_streams_once_and_others_are_begun_elsewhere(how: str) -> None:
    """Six on two nodes, their prompts so long that some have given tokens and others none."""
    fleet, nodes, client = fleet_of({}, {})
    prompts = [prompt_of(seed, 3000) for seed in range(6)]
    streams = [client.open(ask(prompt, 200)) for prompt in prompts]
    fleet.run(0.9)
    begun = {stream for stream in streams if stream in client.told and told(client, stream)}
    there = {stream for stream in streams if stream in begun}
    assert 0 < len(begun) < 6
    if how == "cut":
        nodes[0].network.cut()
    else:
        nodes[0].member.connection.close(m_close(), "")  # type: ignore[union-attr]
    fleet.run(120.0)
    whole = lost = 0
    for stream, prompt in zip(streams, prompts, strict=True):
        last = client.ends[stream]
        if isinstance(last, m.LeaseEnded):
            assert told(client, stream) == written(prompt, 200), "every token once, in order"
            assert last.tokens == 200
            whole += 1
        else:
            assert client.refusal(stream) == "lease_lost"
            assert stream in there
            assert told(client, stream) == written(prompt, 200)[: len(told(client, stream))]
            lost += 1
    assert lost >= 1
    assert whole >= 3
    fleet.empty()


def m_close():  # type: ignore[no-untyped-def]
    from mainspring.wire.errors import Close

    return Close.LOST


def test_a_client_that_leaves_frees_its_slot_within_a_round() -> None:
    fleet, [node], client = fleet_of({})
    stream = client.open(ask(prompt_of(1), 5000))
    fleet.run(1.0)
    assert told(client, stream)
    client.cancel(stream)
    fleet.run(0.1)
    assert client.refusal(stream) == "cancelled"
    before = len(node.worker.tasks)
    fleet.run(1.0)
    assert not [task for task in node.worker.tasks[before:] if task.round]
    clean(fleet, [node])


def test_what_would_miss_its_first_token_or_slow_the_others_is_refused_at_once() -> None:
    """Two slots' worth of rate: a round of three takes longer than the interactive gap."""
    slow = RoundCost(0.02, 0.035)
    fleet, [node], client = fleet_of({"slots": 8, "round_cost": slow})
    streams = [client.open(ask(prompt_of(seed), 100, "interactive")) for seed in range(4)]
    fleet.run(0.5)
    assert [stream for stream in streams if stream in client.ends] == streams[2:]
    for stream in streams[2:]:
        last = client.ends[stream]
        assert isinstance(last, m.Refused)
        assert (last.code, last.status) == ("contention", 429)
        assert last.retry_after_s is not None
        assert last.retry_after_s > 5.0
    late = client.open(ask(prompt_of(9, 12_000), 10, "interactive"))
    fleet.run(0.1)
    assert client.refusal(late) == "contention", "its prompt alone takes longer than a second"
    fleet.run(30.0)
    for stream in streams[:2]:
        assert end(client, stream).tokens == 100
        assert (end(client, stream).total_s - end(client, stream).first_s) / 99 <= 0.1
    clean(fleet, [node])


def test_the_status_tells_of_streams() -> None:
    fleet, [node], client = fleet_of({})
    streams = [client.open(ask(prompt_of(seed), 100)) for seed in range(3)]
    fleet.run(0.8)
    status = client.status()
    assert status.totals.streams == status.nodes[0].slots_used == 3
    fleet.run(10.0)
    done = {stream: end(client, stream) for stream in streams}
    fleet.run(2.5)
    status = client.status()
    [shown] = [each for each in status.classes if each.name == "standard"]
    firsts = sorted(each.first_s for each in done.values())
    assert (shown.streams, shown.tokens, shown.first_p50_s, shown.first_p99_s) == (3, 300, firsts[1], firsts[2])
    assert 0.01 < shown.gap_p50_s <= shown.gap_p99_s < 0.1
    assert shown.token_s == 0.25
    [writer] = status.nodes
    assert writer.written is not None
    assert writer.written == status.totals.written
    assert (writer.written.tokens, writer.written.streams, writer.written.prefilled) == (300, 3, 600)
    assert sum((index + 1) * count for index, count in enumerate(writer.written.histogram)) == 300
    assert writer.round_cost is not None
    clean(fleet, [node])


def test_a_late_first_token_counts_as_late() -> None:
    fleet, [node], client = fleet_of({})
    node.worker.slower = 1.35
    stream = client.open(ask(prompt_of(1, 8000), 5, "interactive"))
    fleet.run(5.0)
    assert end(client, stream).first_s > 1.0
    [shown] = [each for each in client.status().classes if each.name == "interactive"]
    assert shown.late == 1


def test_a_slow_reader_gets_its_tokens_in_fewer_frames_and_loses_none() -> None:
    fleet, [node], client = fleet_of({})
    stream = client.open(ask(prompt_of(1), 500))
    fleet.run(0.6)
    [peer] = [peer for peer in fleet.shell.book.peers if peer.role == "client"]
    kind = type(peer)
    was, stuffed = kind.full, [True]
    kind.full = property(lambda self: stuffed[0] and self is peer)  # type: ignore[method-assign, assignment]
    try:
        fleet.run(3.0)
        before = len(client.told[stream])
        stuffed[0] = False
        fleet.shell.writable(peer, fleet.world.now_s)
        fleet.run(0.01)
        [held] = client.told[stream][before : before + 1]
        assert isinstance(held, m.Rounds)
        assert held.rounds == len(held.tokens) // 4 > 50
    finally:
        kind.full = was  # type: ignore[method-assign]
    fleet.run(20.0)
    assert told(client, stream) == written(prompt_of(1), 500)
    clean(fleet, [node])


def test_a_reader_that_never_reads_loses_its_stream_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.fleet.clients.UNSENT_BYTES", 2000)
    fleet, [node], client = fleet_of({})
    other = Client(fleet, "other", instance=9)
    fleet.run(0.5)
    [peer] = [peer for peer in fleet.shell.book.peers if peer.role == "client" and peer.name == "gate"]
    was = type(peer).full
    monkeypatch.setattr(type(peer), "full", property(lambda self: self is peer or was.fget(self)))  # type: ignore[attr-defined]
    deaf = client.open(ask(prompt_of(1), 2000))
    well = other.open(ask(prompt_of(2), 100))
    fleet.run(20.0)
    assert client.refusal(deaf) == "slow_reader"
    assert told(other, well) == written(prompt_of(2), 100)
    clean(fleet, [node])


def test_a_node_that_sends_more_than_asked_or_counts_otherwise_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, _, client = fleet_of({})
    stream = client.open(ask(prompt_of(1), 20))
    fleet.run(0.1)
    [served] = fleet.shell.nodes.work.leases.values()
    served.most = served.tokens + 3
    fleet.run(5.0)
    assert client.refusal(stream) == "lease_lost"
    assert len(told(client, stream)) == served.most
    short = client.open(ask(prompt_of(2), 20))

    def lies(_ended: object, sent: int) -> m.LeaseEnded:
        return m.LeaseEnded(tokens=sent + 1, finish="stop")

    monkeypatch.setattr("mainspring.node.leases.ended_of", lies)
    fleet.run(5.0)
    assert client.refusal(short) == "lease_lost", "a stream cut short never looks whole"
    fleet.empty()


def test_the_simulator_agrees_with_a_real_node() -> None:
    """One trace through the simulator's node and a real one on a null device of the same times: the same first tokens
    and ends to within a round."""
    rng = np.random.default_rng(3)
    arrivals = np.cumsum(rng.exponential(1.2, 20)).tolist()
    shapes = [(int(rng.integers(100, 3000)), int(rng.integers(20, 120))) for _ in range(20)]
    fleet, [node], client = fleet_of({})
    streams = []
    for at, (prompt, tokens) in zip(arrivals, shapes, strict=True):
        fleet.run(1.0 + at - fleet.world.now_s)
        streams.append(client.open(ask(prompt_of(prompt, prompt), tokens)))
    fleet.run(60.0)
    ends = [client.ends[stream] for stream in streams]
    entries = [
        (at + 1.0, generate(f"g{i}", "standard", prompt=prompt, tokens=tokens))
        for i, (at, (prompt, tokens)) in enumerate(zip(arrivals, shapes, strict=True))
    ]
    offered = node.offering.offer()
    virtual = spec("n", COST, limits=offered.limits, round_cost=ROUND, network_s=0.003)
    simulation = Simulation(router(), [NodePlan(virtual, Truth(COST, ROUND))], Trace(entries), DEFAULT_CLASSES)
    simulation.run(100.0)
    told_s = [(each.first_s, each.total_s) if isinstance(each, m.LeaseEnded) else None for each in ends]
    seen = [simulation.outcomes[f"g{i}"] for i in range(len(ends))]
    off = []
    for told, outcome in zip(told_s, seen, strict=True):
        assert (told is not None) == (outcome.state == "answered")
        if told is not None and outcome.first_s is not None:
            off.append((outcome.first_s - outcome.arrival_s - told[0], outcome.done_s - outcome.arrival_s - told[1]))
    assert len(off) >= 15
    firsts, totals = np.abs(off).T
    assert firsts.max() < 0.03, "a round: the simulator's first token costs one"
    assert np.median(totals) < 0.03
    assert np.sort(totals)[-2] < 0.05, "but one, of which a pass went before another round"


def router():  # type: ignore[no-untyped-def]
    from mainspring.core.router import Router

    return Router()


def test_an_idle_node_whose_pace_wandered_still_takes_a_long_request() -> None:
    """Its streams were short, and it got slower while each of them grew."""
    fleet, [ant], client = fleet_of({"slots": 2})
    assert ant.streams is not None
    times = ant.streams.backend._times  # type: ignore[attr-defined]
    for index in range(6):
        times.round = ROUND.d0
        stream = client.open(ask(prompt_of(index, 100), 250))
        for _ in range(24):
            fleet.run(0.15)
            times.round *= 1.03
        fleet.run(5.0)
        assert end(client, stream).finish == "length"
    times.round = ROUND.d0
    fleet.run(5.0)
    long = client.open(ask(prompt_of(9, 6000), 4000))
    fleet.run(120.0)
    assert end(client, long).finish == "length"
    clean(fleet, [ant])


def test_a_grammar_that_a_node_can_not_follow_is_told_to_who_asked_and_to_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What the compiler says may quote the schema: it is in the caller's answer, with the field, and in no log."""
    caplog.set_level("DEBUG")
    fleet, [ant], client = fleet_of({})
    writer = ant.worker.writer
    assert writer is not None

    def grammars(_kind: str, text: str) -> Constraint:
        raise GrammarError(f"unknown keyword {text!r}", param="grammar")

    writer._grammars = grammars
    how = m.Sampling(temperature=0.0, drafter="none", grammar_kind="json_schema", grammar="my diary")
    other = Client(fleet, "other")
    fleet.run(0.1)
    good, bad = other.open(ask(prompt_of(1))), client.open(ask(prompt_of(2), sampling=how))
    worse = other.open(ask(prompt_of(3), sampling=replace(how, grammar="my letters")))
    fleet.run(30.0)
    assert end(other, good).finish == "length"
    for who, stream, words_of in ((client, bad, "my diary"), (other, worse, "my letters")):
        refused = who.ends[stream]
        assert isinstance(refused, m.Refused)
        assert (refused.code, refused.status, refused.param) == ("bad_grammar", 400, "grammar")
        assert refused.message == f"unknown keyword {words_of!r}"
    assert "my diary" not in caplog.text
    assert "a grammar that can't be followed" in caplog.text
    clean(fleet, [ant])


def test_a_lease_that_a_node_refuses_says_what_was_wrong() -> None:
    fleet, [ant], client = fleet_of({})
    stream = client.open(ask(prompt_of(1), sampling=m.Sampling(drafter="oracle")))
    fleet.run(30.0)
    refused = client.ends[stream]
    assert isinstance(refused, m.Refused)
    assert (refused.code, refused.status) == ("bad_shape", 400)
    assert refused.message == "sampling.drafter: known are mtp, ngram, none"
    clean(fleet, [ant])
