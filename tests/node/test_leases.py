"""A node that generates, under virtual time: real engine, scheduler and link over the null device's slots."""

import numpy as np
import pytest

from mainspring.backend.generation import SlotLimits
from mainspring.backend.null import NullBackend
from mainspring.core.cost import RoundCost
from mainspring.engine.stream_records import Emitted, StreamSpec
from mainspring.engine.streams import Streams
from mainspring.node.membership import Membership
from mainspring.node.tasks import Task
from mainspring.wire import messages as m
from support.nodes import NodeRig, null_backend, part, words

PROMPT = [(7 * i) % 300 for i in range(100)]


def written(prompt: list[int], tokens: int, vocab: int = 300, **spec: object) -> list[int]:
    """What the null device writes after `prompt`, without a node."""
    backend = NullBackend(null_backend().limits, sleep=lambda _: None)
    streams = Streams(backend.generation(SlotLimits(1)), cache_bytes=0)
    streams.open(StreamSpec(id="x", tokens=np.asarray(prompt), max_tokens=tokens, drafter="none", **spec))  # type: ignore[arg-type]
    while streams.prefill("x"):
        pass
    out: list[int] = []
    while streams.live:
        out += [token for each in streams.round() for token in each.tokens]
    return out


def lease(rig: NodeRig, request: str = "g", prompt: list[int] = PROMPT, tokens: int = 20, **fields: object) -> int:
    fields.setdefault("sampling", m.Sampling(temperature=0.0, drafter="none"))
    opened = m.OpenLease(
        request=request, epoch=rig.epoch, prompt_tokens=len(prompt), max_tokens=tokens, prompt=words(prompt), **fields
    )  # type: ignore[arg-type]  # fmt: skip
    return rig.router.open(opened)


def chunk(rig: NodeRig, request: str = "g", start: int = 0, to: int = 100, whole: int = 100, **fields: object) -> int:
    return rig.send(
        m.Part(request=request, view_from=start, chunk=to - start, lease=to == whole, more=to < whole, **fields)  # type: ignore[arg-type]
    )


def tokens(rig: NodeRig, stream: int) -> list[int]:
    return [t for each in rig.heard(stream) if isinstance(each, m.Rounds) for t in m.u32(each.tokens).tolist()]


def ended(rig: NodeRig, stream: int) -> m.LeaseEnded:
    end = rig.last(stream)
    assert isinstance(end, m.LeaseEnded), end
    return end


def rounds(rig: NodeRig) -> list[Task]:
    return [task for task in rig.worker.tasks if task.round]


def test_a_lease_from_its_prompt_to_its_end() -> None:
    rig = NodeRig(slots=2).join()
    stream, work = lease(rig), chunk(rig)
    rig.run(1.0)
    assert rig.done(work).logits == b""
    assert tokens(rig, stream) == written(PROMPT, 20)
    end = ended(rig, stream)
    assert (end.finish, end.tokens, end.rounds, end.cached_tokens, end.reason) == ("length", 20, 20, 0, None)
    assert end.histogram[0] == 20
    assert not len(rig.scheduler.leases)
    assert rig.streams is not None
    assert rig.streams.free_slots == 2
    assert not rig.scheduler.busy


def test_the_prompt_comes_in_chunks_with_rounds_of_others_between_them() -> None:
    rig = NodeRig(null_backend((0.05, 1e-5, 1e-5)), slots=2).join()
    first = lease(rig, "a", tokens=400, token_s=0.1)
    chunk(rig, "a")
    rig.run(0.3)
    long = [(3 * i) % 300 for i in range(1000)]
    second = lease(rig, "b", long, tokens=5)
    for start, to in ((0, 320), (320, 640), (640, 960), (960, 1000)):
        chunk(rig, "b", start, to, 1000)
    before = len(rig.worker.tasks)
    rig.run(6.0)
    order = "".join("p" if task.chunks else "r" for task in rig.worker.tasks[before:] if task.chunks or task.round)
    assert order.count("p") == 4
    assert "pp" not in order, "the stream's gap of 0.1 s has room for one pass and a round"
    assert tokens(rig, second) == written(long, 5)
    assert tokens(rig, first) == written(PROMPT, 400)


def test_all_streams_share_each_round() -> None:
    rig = NodeRig(slots=4).join()
    streams = []
    for index in range(4):
        prompt = [(i * (index + 2)) % 300 for i in range(100)]
        streams.append((lease(rig, f"g{index}", prompt, tokens=50), prompt))
        chunk(rig, f"g{index}")
    rig.run(3.0)
    for stream, prompt in streams:
        assert tokens(rig, stream) == written(prompt, 50), "text is that of a stream alone"
    assert max(len(task.round) for task in rounds(rig)) == 4
    assert len(rounds(rig)) < 70


def test_a_cancelled_stream_frees_its_slot_within_a_round() -> None:
    rig = NodeRig(slots=1).join()
    stream = lease(rig, tokens=10_000)
    chunk(rig)
    rig.run(0.5)
    sent = len(tokens(rig, stream))
    assert sent > 10
    rig.router.send(stream, m.Cancel(reason="enough"))
    rig.run(2 * rig.delay_s)
    before = len(rounds(rig))
    rig.run(0.05)
    assert ended(rig, stream).finish == "cancelled"
    assert len(rounds(rig)) == before
    assert rig.streams is not None
    assert rig.streams.free_slots == 1
    again = lease(rig, "h", tokens=3)
    chunk(rig, "h")
    rig.run(0.5)
    assert ended(rig, again).tokens == 3


def test_a_stream_cancelled_in_its_prompt_leaves_nothing() -> None:
    rig = NodeRig(null_backend((0.2, 1e-5, 1e-5)), slots=1).join()
    stream = lease(rig, tokens=10)
    works = [chunk(rig, "g", 0, 64), chunk(rig, "g", 64, 100)]
    rig.run(0.1)
    rig.router.send(stream, m.Cancel())
    rig.run(1.0)
    assert ended(rig, stream).finish == "cancelled"
    assert rig.done(works[0]), "what ran already is answered"
    assert rig.failed(works[1]).reason == "late", "nobody's fault"
    assert rig.streams is not None
    assert rig.streams.free_slots == 1
    assert not rounds(rig)


def test_a_chunk_without_a_lease_is_nobodys_fault_and_harms_no_other_part() -> None:
    rig = NodeRig(slots=1).join()
    both = rig.send(part("ok"), m.Part(request="g", chunk=100, lease=True))
    rig.run(0.5)
    failed = rig.failed(both)
    assert (failed.reason, failed.failed) == ("late", (1,))
    assert len(m.f32(failed.logits)) == 4


def test_attempts_are_told_apart() -> None:
    """What a router sends for an earlier lease of a request must not scan the prompt of a later one."""
    rig = NodeRig(slots=2).join()
    stream = lease(rig, attempt=1)
    old = chunk(rig)
    new = chunk(rig, attempt=1)
    rig.run(1.0)
    assert rig.failed(old).reason == "late"
    assert rig.done(new)
    assert tokens(rig, stream) == written(PROMPT, 20)


def test_a_lost_link_ends_all_streams_and_frees_their_slots() -> None:
    rig = NodeRig(slots=2).join()
    stream = lease(rig, tokens=10_000)
    chunk(rig)
    rig.run(0.5)
    assert len(rig.scheduler.leases) == 1
    rig.network.cut()
    rig.run(30.0)
    assert rig.ended
    assert not len(rig.scheduler.leases)
    assert rig.streams is not None
    assert rig.streams.free_slots == 2
    before = len(rounds(rig))
    rig.join()
    rig.run(1.0)
    assert len(rounds(rig)) == before, "nothing of the old link is worked on"
    assert rig.last(stream) is None
    again = lease(rig, tokens=3)
    chunk(rig)
    rig.run(0.5)
    assert tokens(rig, again) == written(PROMPT, 3)


def test_a_repeated_prompt_runs_no_scan_and_a_longer_one_only_what_is_new() -> None:
    rig = NodeRig(slots=1).join()
    assert rig.streams is not None
    fields = {"marks": (("turn", 64), ("end", 100)), "salt": "s"}
    first = lease(rig, "a", **fields)
    work = chunk(rig, "a")
    rig.run(1.0)
    assert dict(rig.done(work).gained) == {"turn": 64} or dict(rig.done(work).gained) == {"end": 64}
    scanned = rig.streams.stats.prefilled
    again = lease(rig, "b", **fields)
    chunk(rig, "b", 64, 100)
    rig.run(1.0)
    assert rig.streams.stats.prefilled == scanned
    assert ended(rig, again).cached_tokens == 100
    assert [each.cached for each in rig.heard(again) if isinstance(each, m.Rounds)] == [100] * 20
    assert tokens(rig, again) == tokens(rig, first) == written(PROMPT, 20)
    longer = [*PROMPT, *range(50)]
    third = lease(rig, "c", longer, salt="s")
    chunk(rig, "c", 64, 150, 150)
    rig.run(1.0)
    assert rig.streams.stats.prefilled == scanned + 150 - 64
    assert tokens(rig, third) == written(longer, 20)
    other = lease(rig, "d", salt="other")
    chunk(rig, "d")
    rig.run(1.0)
    assert ended(rig, other).cached_tokens == 0, "another tenant's prompt is not found"


def test_a_prompt_whose_checkpoint_went_is_told_by_key_and_not_scanned_in_secret() -> None:
    rig = NodeRig(slots=1).join()
    prompt = [(11 * i) % 300 for i in range(1000)]
    lease(rig, "a", prompt, marks=(("turn", 960),))
    work = rig.send(m.Part(request="a", view_from=960, chunk=40, lease=True, prefix="turn"))
    rig.run(0.5)
    failed = rig.failed(work)
    assert (failed.reason, failed.dropped) == ("view_missing", ("turn",))
    assert rig.streams is not None
    assert rig.streams.free_slots == 1
    assert rig.streams.stats.prefilled == 0


def test_the_first_report_on_a_link_lists_the_checkpoints_of_prompts() -> None:
    rig = NodeRig(slots=1).join()
    lease(rig, marks=(("turn", 64),))
    chunk(rig)
    rig.run(1.0)
    rig.network.cut()
    rig.run(30.0)
    rig.join()
    fresh = [report for report in rig.reports if report.fresh]
    assert ("turn", 64) in fresh[-1].gained


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": [999] * 5}, "prompt"),
        ({"tokens": 40_000}, "max_tokens"),
        ({"tokens": 40_000}, "and this node takes 32,768 a stream"),
        ({"sampling": m.Sampling(stop_ids=(300,))}, "stop_ids"),
        ({"sampling": m.Sampling(logit_bias={300: 1.0})}, "logit_bias"),
        ({"sampling": m.Sampling(temperature=100.0, top_p=0.0)}, "top_p"),
        ({"sampling": m.Sampling(drafter="psychic")}, "drafter"),
        ({"prompt": []}, "prompt"),
    ],
    ids=["vocabulary", "context", "figures", "stop", "bias", "sampling", "drafter", "empty"],
)
def test_nonsense_is_refused_at_once(fields: dict[str, object], message: str) -> None:
    rig = NodeRig(slots=1).join()
    stream = lease(rig, **fields)
    rig.run(0.1)
    end = ended(rig, stream)
    assert (end.finish, end.reason) == ("failed", "bad_work")
    assert message in end.message
    assert not rig.worker.tasks


def test_a_grammar_that_is_not_here_fails_its_stream_alone() -> None:
    rig = NodeRig(slots=2).join()
    stream = lease(rig, "a", sampling=m.Sampling(grammar_kind="json_schema", grammar="{}"))
    bad = chunk(rig, "a")
    good = lease(rig, "b")
    chunk(rig, "b")
    rig.run(1.0)
    assert rig.failed(bad).reason == "bad_work"
    assert "grammar" in rig.failed(bad).message
    assert rig.last(stream) is None, "the router lets go of it"
    rig.router.send(stream, m.Cancel())
    rig.run(0.1)
    assert ended(rig, stream).finish == "cancelled"
    assert tokens(rig, good) == written(PROMPT, 20)


def test_a_round_that_fails_for_one_stream_ends_that_one() -> None:
    rig = NodeRig(slots=2).join()
    streams = [lease(rig, name, [index] * 100, tokens=100) for index, name in enumerate("ab")]
    for name in "ab":
        chunk(rig, name)
    assert rig.streams is not None
    real, calls = rig.streams.backend.round, [0]

    def broken(parts):  # type: ignore[no-untyped-def]
        calls[0] += 1
        if calls[0] > 10 and any(each.slot == 1 for each in parts):
            raise RuntimeError("device fault")
        return real(parts)

    rig.streams.backend.round = broken  # type: ignore[method-assign]
    rig.run(5.0)
    assert tokens(rig, streams[0]) == written([0] * 100, 100)
    end = ended(rig, streams[1])
    assert (end.finish, end.reason) == ("failed", "engine")
    assert end.tokens == len(tokens(rig, streams[1])) > 0
    assert rig.scheduler.health.state == "ready"
    assert rig.streams.free_slots == 2


def test_a_fault_of_the_engine_itself_in_a_round_is_told_to_its_streams_and_the_node_goes_on() -> None:
    rig = NodeRig(slots=2).join()
    stream = lease(rig, tokens=100)
    chunk(rig)
    rig.run(0.3)
    assert rig.streams is not None
    real = rig.streams.round

    def broken(_ids):  # type: ignore[no-untyped-def]
        raise RuntimeError("mid round")

    rig.streams.round = broken  # type: ignore[method-assign]
    rig.run(0.1)
    assert (ended(rig, stream).finish, ended(rig, stream).reason) == ("failed", "engine")
    rig.streams.round = real  # type: ignore[method-assign]
    again = lease(rig, "h", tokens=3)
    chunk(rig, "h")
    rig.run(0.5)
    assert ended(rig, again).tokens == 3
    assert rig.streams.free_slots == 2


@pytest.mark.parametrize("where", ["ended", "scanned"])
def test_a_fault_of_our_own_mid_round_or_mid_prompt_fails_what_it_was_about(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = NodeRig(slots=2).join()
    stream = lease(rig, tokens=100)
    work = chunk(rig)
    real, broken = getattr(rig.scheduler.rounds, where), [False]

    def faulty(*arguments: object) -> object:
        if broken[0]:
            broken[0] = False
            raise RuntimeError("a fault of ours")
        return real(*arguments)

    monkeypatch.setattr(rig.scheduler.rounds, where, faulty)
    if where == "ended":
        rig.run(0.3)
        broken[0] = True
        rig.run(0.2)
        assert (ended(rig, stream).finish, ended(rig, stream).reason) == ("failed", "engine")
    else:
        broken[0] = True
        rig.run(0.2)
        assert rig.failed(work).reason == "engine"
        rig.router.send(stream, m.Cancel())
    again = lease(rig, "h", tokens=3)
    chunk(rig, "h")
    rig.run(0.5)
    assert tokens(rig, again) == written(PROMPT, 3)
    assert rig.streams is not None
    assert rig.streams.free_slots == 2


def test_while_the_router_reads_nothing_no_round_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    stuffed = [False]
    monkeypatch.setattr(Membership, "full", property(lambda _: stuffed[0]))
    rig = NodeRig(slots=1).join()
    stream = lease(rig, tokens=2000)
    chunk(rig)
    rig.run(0.5)
    stuffed[0] = True
    rig.run(0.1)
    before, sent = len(rounds(rig)), len(tokens(rig, stream))
    work = rig.send(part("score"))
    rig.run(2.0)
    assert len(rounds(rig)) == before
    assert rig.done(work), "passes go on: their answers are small and somebody waits"
    stuffed[0] = False
    rig.member.writable()
    rig.run(1.0)
    assert len(tokens(rig, stream)) > sent


def test_a_drain_lets_streams_end_and_tells_those_that_do_not() -> None:
    rig = NodeRig(slots=2, round_cost=RoundCost(0.02, 0.0)).join()
    short, long = lease(rig, "a", tokens=20), lease(rig, "b", [5] * 100, tokens=10_000)
    chunk(rig, "a")
    chunk(rig, "b")
    rig.run(0.1)
    rig.router.send(0, m.Drain(within_s=3.0))
    rig.run(0.1)
    late = lease(rig, "c", [6] * 100)
    rig.run(5.0)
    assert ended(rig, short).finish == "length"
    assert (ended(rig, late).finish, ended(rig, late).reason) == ("failed", "draining")
    end = ended(rig, long)
    assert (end.finish, end.reason) == ("failed", "draining")
    assert end.tokens == len(tokens(rig, long)) > 20
    assert rig.router.closed is not None
    assert rig.router.closed.orderly


def test_what_a_round_costs_is_learnt_and_told() -> None:
    rig = NodeRig(slots=4, round_cost=RoundCost(0.01, 0.001)).join()
    rig.backend.round_seconds = (0.0, 0.0, 0.0)  # type: ignore[attr-defined]
    assert rig.streams is not None
    rig.streams.backend._times.round, rig.streams.backend._times.slot = 0.03, 0.004  # type: ignore[attr-defined]
    for index in range(4):
        lease(rig, f"g{index}", [index] * 100, tokens=100 + 50 * index)
        chunk(rig, f"g{index}")
    rig.run(30.0)
    told = [report.round_cost for report in rig.reports if report.round_cost is not None]
    assert told
    for slots in (1, 2, 3, 4):
        assert told[-1].seconds(slots, 0) == pytest.approx(0.03 + 0.004 * slots, rel=0.1)
    assert told[-1].tokens == pytest.approx(1.0, abs=0.05)
    last = rig.reports[-1].written
    assert last is not None
    assert last.tokens == 100 + 150 + 200 + 250
    assert last.slot_rounds == sum(last.histogram) == last.tokens
    assert last.streams == 4


def test_a_node_offers_its_slots_and_what_a_round_costs() -> None:
    rig = NodeRig(slots=3).join()
    [offer] = [each.message for each in rig.router.got(m.Offer)]
    assert isinstance(offer, m.Offer)
    assert offer.limits.slots == 3
    assert offer.round_cost == RoundCost(0.01, 0.001)
    assert rig.offering.offer(generates=False).limits.slots == 0
    assert rig.offering.offer(generates=False).round_cost is None


def test_a_first_token_is_no_round_to_learn_from() -> None:
    """It comes of the prompt's last row in no time: as a round of one slot it would make the others look free."""
    rig = NodeRig(slots=1, round_cost=RoundCost(0.01, 0.001)).join()
    assert rig.streams is not None
    real = rig.streams.round

    def round_with_some_host_work(names: object = None) -> list[Emitted]:
        rig.worker.slept(2e-4)
        return real(names)  # type: ignore[arg-type]

    rig.streams.round = round_with_some_host_work  # type: ignore[method-assign]
    for index in range(40):
        lease(rig, f"g{index}", [index] * 100, tokens=2)
        chunk(rig, f"g{index}")
        rig.run(1.0)
    fit = rig.scheduler.rounds.fit
    assert fit is not None
    assert fit.rounds == 40
    assert fit.cost.seconds(1, 100) == pytest.approx(0.0112, rel=0.05)
    assert fit.cost.seconds(1, 20_000) == pytest.approx(0.0112, rel=0.05)


def test_a_slot_that_the_device_keeps_costs_one_slot_and_all_of_them_the_node_its_health() -> None:
    rig = NodeRig(slots=2).join()
    assert rig.streams is not None
    real, kept = rig.streams.backend.close_slot, {0}

    def close_slot(slot: int) -> None:
        if slot in kept:
            raise RuntimeError("it does not let go")
        real(slot)

    rig.streams.backend.close_slot = close_slot  # type: ignore[method-assign]
    for index in range(4):
        stream = lease(rig, f"g{index}", [index] * 100, tokens=5)
        chunk(rig, f"g{index}")
        rig.run(1.0)
        assert ended(rig, stream).finish == "length"
    assert (rig.streams.free_slots, rig.streams.retired_slots) == (1, 1)
    kept.add(1)
    stream = lease(rig, "last", tokens=5)
    chunk(rig, "last")
    rig.run(1.0)
    assert ended(rig, stream).finish == "length"
    for index in range(3):
        lease(rig, f"h{index}", tokens=5)
        work = chunk(rig, f"h{index}")
        rig.run(1.0)
        assert rig.failed(work).reason == "engine"
    assert rig.scheduler.health.state == "failing"
    kept.clear()
    stream = lease(rig, "again", tokens=5)
    chunk(rig, "again")
    rig.run(1.0)
    assert ended(rig, stream).finish == "length"
    assert rig.streams.free_slots == 2
