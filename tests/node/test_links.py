"""One link's life and the next one's: joining, reports, bundle, drain, routers that go and come back."""

import numpy as np
import pytest

from mainspring.core.cost import Cost
from mainspring.node.probe import Probe
from mainspring.wire import messages as m
from mainspring.wire.errors import Close
from support.nodes import NodeRig, expected, null_backend, part


def test_it_offers_and_reports_everything_at_first() -> None:
    rig = NodeRig()
    rig.join()
    offer = rig.router.got(m.Offer)[0].message
    assert (offer.model, offer.numerics, offer.bundle_bytes, offer.limits.slots) == ("key", "fp32", 1 << 20, 0)
    first = rig.reports[0]
    assert first.fresh
    assert (first.state, first.gained, first.provisional) == ("ready", (), False)
    assert first.cost == Cost(0.01, 1e-5, 1e-5)


def test_reports_say_what_changed_and_come_without_change_too() -> None:
    rig = NodeRig(null_backend((1.0, 0.0, 0.0))).join()
    rig.send(part(view_key="v"))
    rig.run(0.9)
    assert rig.reports[-1].state == "busy"
    rig.run(1.0)
    assert rig.reports[-1].state == "ready"
    assert rig.reports[-1].passes == 1
    assert rig.reports[-1].cache_bytes == 50 * 4096
    assert all(report.gained == () for report in rig.reports), "the pass's own answer told it"
    before = len(rig.reports)
    rig.run(5.0)
    assert 2 <= len(rig.reports) - before <= 4
    assert rig.reports[-1].cost is None


def test_an_idle_node_proves_that_it_lives() -> None:
    rig = NodeRig().join()
    rig.run(31.0)
    assert 2 <= len(rig.worker.ran) <= 3, "a canary every ten seconds"
    assert rig.reports[-1].idle_s < 11.0
    assert rig.reports[-1].passes == 0


def test_a_dead_device_is_visible_and_heals() -> None:
    rig = NodeRig().join()
    real = rig.engine.backend.score_pass

    def dead(_work):
        raise RuntimeError("device lost")

    rig.engine.backend.score_pass = dead
    for i in range(3):
        rig.send(part(f"r{i}"))
    rig.run(3.0)
    assert (rig.reports[-1].state, rig.reports[-1].failures) == ("failing", 3)
    rig.engine.backend.score_pass = real
    rig.run(15.0)
    assert rig.reports[-1].state == "ready", "a canary came back"


def test_idle_time_refines_the_cost_and_tells() -> None:
    rig = NodeRig(null_backend((0.02, 2e-5, 4e-5)), known=False)
    elapsed = 0.0
    while (shape := rig.probe.next_first(elapsed)) is not None:
        elapsed += 0.8  # as if each took so long: most is left for later
        rig.probe.note(shape, 0.02 + 2e-5 * shape.sample[0] + 4e-5 * shape.sample[1])
    rig.join()
    assert rig.router.got(m.Offer)[0].message.provisional
    rig.run(5.0)
    stream = rig.send(part())
    rig.run(200.0)
    assert rig.done(stream).waited_s <= 0.5, "no measurement holds work up for longer"
    told = [report for report in rig.reports if report.provisional is False]
    assert len(told) == 1
    assert told[0].cost.c2 == pytest.approx(4e-5, rel=0.02)
    assert len(told[0].anchors) > len(rig.router.got(m.Offer)[0].message.anchors)


def test_the_bundle_comes_in_pieces_and_another_one_is_not_there() -> None:
    rig = NodeRig().join()
    streams = [rig.router.open(m.FetchBundle(bundle=name)) for name in ("b", "b", "other")]
    rig.run(1.0)
    for stream in streams[:2]:
        *data, end = rig.heard(stream)
        assert b"".join(piece.data for piece in data) == rig.offering.packed
        assert (end.found, end.size) == (True, 1 << 20)
        assert end.sha256 == rig.router.got(m.Offer)[0].message.bundle_sha256
    assert rig.heard(streams[2]) == [m.BundleEnd(found=False)]


def test_a_node_told_to_leave_finishes_and_says_goodbye() -> None:
    rig = NodeRig(null_backend((0.5, 0.0, 0.0))).join()
    held = [rig.send(part(f"r{i}")) for i in range(2)]
    rig.run(0.1)
    rig.member.drain(10.0, "upgrade")
    crossed = rig.send(part("crossed"))
    rig.run(0.7)
    assert rig.router.got(m.Drain)
    assert rig.reports[-1].state == "draining"
    assert not rig.ended
    rig.run(2.0)
    assert [rig.done(stream).measured_s for stream in (*held, crossed)] == [0.5] * 3
    assert rig.router.got(m.Goodbye)
    assert rig.router.closed is not None
    assert (rig.router.closed.close, rig.router.closed.orderly) == (Close.DRAINED, True)


def test_a_drain_refuses_what_would_take_too_long() -> None:
    rig = NodeRig(null_backend((1.0, 0.0, 0.0))).join()
    streams = [rig.send(part(f"r{i}", view_key=f"{i}"), predicted_s=1.0) for i in range(3)]
    rig.run(0.1)
    rig.router.send(0, m.Drain(within_s=2.5))
    rig.run(4.0)
    assert rig.done(streams[0])
    assert rig.done(streams[1])
    assert rig.failed(streams[2]).reason == "draining"
    assert rig.router.got(m.Goodbye)


def test_an_idle_node_that_leaves_waits_for_what_is_under_way() -> None:
    rig = NodeRig(delay_s=0.1).join()
    rig.run(1.0)
    crossing = rig.send(part())
    rig.member.drain(10.0, "upgrade")
    rig.run(3.0)
    assert rig.done(crossing)
    assert rig.router.got(m.Goodbye)


def test_what_a_lost_router_asked_for_is_never_told_the_next_one() -> None:
    rig = NodeRig(null_backend((1.0, 0.0, 0.0))).join()
    rig.send(part("early", view=range(1, 41), branches=(), more=True))
    rig.run(1.5)
    assert rig.scheduler.views.half_scanned == 1
    rig.worker.before_s = 0.5  # what the old router's pass keeps, it keeps after the new one's first report
    rig.send(part("runs", view_key="runs"))
    rig.send(part("waits", view_key="waits"))
    rig.send(part("half", view=range(1, 41), branches=(), more=True))
    rig.run(0.1)
    rig.network.drop()
    assert rig.ended[0][0].close is Close.LOST
    assert rig.scheduler.views.half_scanned == 0
    old = rig.router
    rig.epoch = 2  # a router that started anew: its epochs and pass ids are those of the last one
    rig._passes = 0
    rig.join()
    assert rig.reports[0].gained == ()
    fresh = rig.send(part("new", view=range(2, 52)))
    rig.run(6.0)
    assert rig.router is not old
    assert np.array_equal(m.f32(rig.done(fresh).logits), expected(range(2, 52), ((5, 6), (7,))))
    assert [type(message) for message in rig.heard(fresh)] == [m.Started, m.Done]
    assert rig.router.closed is None, "nothing that is fenced was said"
    told = [key for message in (*rig.reports, rig.done(fresh)) for key, _ in message.gained]
    assert told == ["runs"], "what it kept stays; what waited was never run"
    assert len(rig.worker.ran) == 3
    assert rig.engine.store.held == 0


def test_what_fails_for_a_lost_router_is_not_told_either() -> None:
    rig = NodeRig(null_backend((1.0, 0.0, 0.0)), cache_bytes=50 * 4096).join()
    rig.send(part("kept", view_key="kept"))
    rig.run(1.5)
    rig.worker.before_s = 0.5
    rig.engine.backend.score_pass = lambda _work: (_ for _ in ()).throw(MemoryError())
    rig.send(part("runs"))
    rig.run(0.1)
    rig.network.drop()
    rig.join()
    assert rig.reports[0].gained == (("kept", 50),)
    rig.run(2.0)
    assert "kept" in {key for report in rig.reports for key in report.dropped}, "told to who listens now"
    assert rig.router.closed is None


def test_kept_views_are_listed_to_a_new_router() -> None:
    rig = NodeRig().join()
    rig.send(part("a", view_key="a"))
    rig.run(1.0)
    rig.network.drop()
    rig.join()
    assert rig.reports[0].fresh
    assert rig.reports[0].gained == (("a", 50),)
    stream = rig.send(part("b", view=(), view_from=50, prefix="a"))
    rig.run(1.0)
    assert np.array_equal(m.f32(rig.done(stream).logits), expected(range(1, 51), ((5, 6), (7,))))


def test_a_router_falls_silent() -> None:
    rig = NodeRig().join()
    rig.network.cut()
    rig.run(8.0)
    assert rig.ended[0][0].close is Close.IDLE
    assert rig.ended[0][1] == pytest.approx(6.3, abs=1.0)
    rig.join()
    stream = rig.send(part())
    rig.run(1.0)
    assert rig.done(stream)


def test_a_router_that_drained_does_not_drain_the_next_one() -> None:
    rig = NodeRig().join()
    rig.router.send(0, m.Drain(within_s=5.0))
    rig.run(1.0)
    assert rig.ended[0][0].close is Close.DRAINED
    rig.join()
    stream = rig.send(part())
    rig.run(1.0)
    assert rig.done(stream)
    assert rig.reports[-1].state == "ready"


def test_many_keys_are_told_in_parts() -> None:
    rig = NodeRig(cache_bytes=1 << 40).join()
    state = rig.backend.prefill(np.arange(2))
    for i in range(5000):
        rig.engine.store.offer(b"v%d" % i, state if i == 0 else rig.backend.copy(state), rows=2, nbytes=1)
    rig.run(0.1)
    rig.network.drop()
    rig.join()
    rig.run(2.0)
    gained = [key for report in rig.reports for key, _ in report.gained]
    assert sorted(gained) == sorted(str(i) for i in range(5000))
    assert rig.router.closed is None


def test_no_cost_no_offer() -> None:
    rig = NodeRig(known=False)
    assert isinstance(rig.probe, Probe)
    with pytest.raises(Exception, match="nothing can be offered"):
        rig.join()
