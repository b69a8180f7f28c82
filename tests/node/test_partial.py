"""One missing view fails its own part of a pass and those that share it; the others are answered."""

import numpy as np

from mainspring.wire import messages as m
from support.nodes import NodeRig, expected, null_backend, part

A, B = range(1, 51), range(101, 151)


def logits(message: m.Done | m.Failed) -> np.ndarray:
    return m.f32(message.logits)


def lacking(request: str = "lacking", key: str = "nobody's") -> m.Part:
    return part(request, view=(), view_from=50, prefix=key, view_key=key)


def test_at_receipt() -> None:
    rig = NodeRig().join()
    stream = rig.send(part("a", view=A), lacking(), part("b", view=B, branches=((7, 8),)))
    rig.run(0.5)
    failed = rig.failed(stream)
    assert (failed.reason, failed.failed, failed.dropped) == ("view_missing", (1,), ("nobody's",))
    wanted = np.concatenate([expected(A, ((5, 6), (7,))), expected(B, ((7, 8),))])
    assert np.array_equal(logits(failed), wanted)
    assert failed.measured_s > 0.0
    assert rig.engine.store.held == 0


def test_what_shares_its_view_fails_with_it_and_nothing_is_mixed_up() -> None:
    rig = NodeRig().join()
    shares = part("shares", view=(), view_from=50, parent=0)
    sound = part("a", view=A, view_key="a")
    other = part("c", view=(), view_from=50, parent=2, branches=((9, 9, 9),))
    stream = rig.send(lacking(), shares, sound, other)
    rig.run(0.5)
    failed = rig.failed(stream)
    assert (failed.reason, failed.failed) == ("view_missing", (0, 1))
    assert np.array_equal(logits(failed), np.concatenate([expected(A, ((5, 6), (7,))), expected(A, ((9, 9, 9),))]))
    assert failed.gained == (("a", 50),)
    assert rig.engine.store.held == 0


def test_when_an_earlier_pass_does_not_leave_what_it_promised() -> None:
    """Known at receipt as promised, gone when the pass begins: the view that it waits for came out as NaN."""
    rig = NodeRig(null_backend((0.2, 0.0, 0.0))).join()
    poison_the_first(rig)
    promised = rig.send(part("a", view=A, view_key="v"))
    child = part("d", view=(), view_from=50, parent=1, branches=((9, 9, 9),))
    waiting = rig.send(lacking("b", "v"), part("c", view=B), child)
    rig.run(2.0)
    assert rig.failed(promised).reason == "not_finite"
    failed = rig.failed(waiting)
    assert (failed.reason, failed.failed) == ("view_missing", (0,))
    assert "v" in {*failed.dropped, *rig.failed(promised).dropped}
    wanted = np.concatenate([expected(B, ((5, 6), (7,))), expected(B, ((9, 9, 9),))])
    assert np.array_equal(logits(failed), wanted)
    assert rig.engine.store.held == 0


def poison_the_first(rig: NodeRig) -> None:
    """The first pass comes out as NaN, and leaves nothing of what it promised."""
    real, first = rig.engine.backend.score_pass, [True]

    def poisoned(work):
        result = real(work)
        bad = result.logits * np.float32("nan") if first and first.pop() else result.logits
        return type(result)(bad, result.states, result.seconds)

    rig.engine.backend.score_pass = poisoned


def test_what_is_half_scanned_beside_one_that_went_goes_on() -> None:
    rig = NodeRig(null_backend((0.2, 0.0, 0.0))).join()
    poison_the_first(rig)
    rig.send(part("a", view=A, view_key="v"))
    waiting = rig.send(lacking("b", "v"), part("c", view=B), part("q", view=range(1, 41), branches=(), more=True))
    rig.run(2.0)
    assert (rig.failed(waiting).reason, rig.failed(waiting).failed) == ("view_missing", (0,))
    rest = rig.send(part("q", view=range(41, 51), view_from=40))
    rig.run(2.0)
    assert np.array_equal(logits(rig.done(rest)), expected(A, ((5, 6), (7,))))
    assert rig.engine.store.held == 0


def test_what_shares_a_view_that_went_while_it_waited_is_not_answered_without_it() -> None:
    rig = NodeRig(null_backend((0.2, 0.0, 0.0))).join()
    poison_the_first(rig)
    rig.send(part("a", view=A, view_key="v"))
    shares = part("d", view=(), view_from=50, parent=0, branches=((9, 9, 9),))
    waiting = rig.send(lacking("b", "v"), shares, part("c", view=B))
    rig.run(2.0)
    assert (rig.failed(waiting).reason, rig.failed(waiting).failed) == ("view_missing", (0, 1))
    assert np.array_equal(logits(rig.failed(waiting)), expected(B, ((5, 6), (7,))))


def test_what_is_poisoned_is_distrusted_by_its_own_key_beside_one_that_went() -> None:
    rig = NodeRig(null_backend((0.2, 0.0, 0.0))).join()
    real = rig.engine.backend.score_pass

    def poisoned(work):
        result = real(work)
        return type(result)(result.logits * np.float32("nan"), result.states, result.seconds)

    rig.engine.backend.score_pass = poisoned
    rig.send(part("a", view=A, view_key="v"))
    waiting = rig.send(lacking("b", "v"), part("c", view=B, view_key="c"))
    rig.run(2.0)
    assert (rig.failed(waiting).reason, rig.failed(waiting).failed) == ("not_finite", ())
    assert "c" in rig.failed(waiting).dropped
    assert len(rig.engine.store) == 0


def test_a_pass_of_which_nothing_is_left_when_it_begins_is_not_run() -> None:
    rig = NodeRig(null_backend((0.2, 0.0, 0.0)), cache_bytes=0).join()
    rig.send(part("a", view=A, view_key="v"))
    waiting = rig.send(lacking("b", "v"))
    rig.run(2.0)
    assert (rig.failed(waiting).reason, rig.failed(waiting).failed) == ("view_missing", ())
    assert len(rig.worker.ran) == 1
    assert rig.engine.store.held == 0


def test_a_part_that_is_poisoned_beside_one_that_is_missing() -> None:
    rig = NodeRig().join()
    real = rig.engine.backend.score_pass

    def poisoned(work):
        result = real(work)
        bad = result.logits.copy()
        bad[-1] = np.nan
        return type(result)(bad, result.states, result.seconds)

    rig.engine.backend.score_pass = poisoned
    stream = rig.send(lacking(), part("a", view=A, view_key="a"), part("b", view=B, branches=((5,),), view_key="b"))
    rig.run(0.5)
    failed = rig.failed(stream)
    assert (failed.reason, failed.failed) == ("not_finite", (0, 2))
    assert np.array_equal(logits(failed), expected(A, ((5, 6), (7,))))
    assert {"nobody's", "b"} <= {*failed.dropped}
    assert failed.gained == (("a", 50),)


def test_a_chunk_that_finds_no_room_beside_one_that_is_missing() -> None:
    rig = NodeRig(cache_bytes=0).join()
    stream = rig.send(lacking(), part("q", view=range(1, 41), branches=(), more=True), part("a", view=A))
    rig.run(0.5)
    failed = rig.failed(stream)
    assert (failed.reason, failed.failed) == ("out_of_memory", (0, 1))
    assert np.array_equal(logits(failed), expected(A, ((5, 6), (7,))))
