"""Stretches of views: results are those of the whole view, states are neither leaked nor moved under anyone's feet."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.backend.null import NullBackend
from mainspring.backend.protocol import Limits
from mainspring.backend.torch_cpu import TorchBackend
from mainspring.engine import Branch, CheckpointGoneError, Engine, Segment, Work
from mainspring.errors import InputError, TooLargeError
from support.models import random_tokens, tiny_model

LABELS = np.array([1, 2], np.int64)
VIEW = np.arange(1, 61, dtype=np.int64)


def branches(*starts: int) -> tuple[Branch, ...]:
    return tuple(Branch(np.arange(start, start + 3, dtype=np.int64), LABELS) for start in starts)


def null(cache_bytes: int = 2**24, pass_rows: int = 65_536) -> tuple[NullBackend, Engine]:
    backend = NullBackend(Limits(1000, pass_rows, 300))
    engine = Engine(backend, cache_bytes=cache_bytes)
    engine.store.watch()
    return backend, engine


def whole(asked: tuple[Branch, ...], view: np.ndarray = VIEW) -> list[np.ndarray]:
    return null(0)[1].score([Work(view, asked)])[0]


def same(got: list[np.ndarray], wanted: list[np.ndarray]) -> bool:
    return len(got) == len(wanted) and all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


@settings(deadline=None)
@given(
    cuts=st.lists(st.integers(1, 59), max_size=4),
    take=st.booleans(),
    pass_rows=st.sampled_from([5, 30, 65_536]),
)
def test_a_view_in_pieces_is_the_view(cuts: list[int], take: bool, pass_rows: int) -> None:
    backend, engine = null(pass_rows=pass_rows)
    ends = [*sorted(set(cuts)), 60]
    start = 0
    for end in ends:
        last = end == 60
        segment = Segment(
            VIEW[start:end], branches(5, 9, 100) if last else (), start,
            resume=b"%d" % start if start else None, take=take and start > 0,
            keep=None if last else b"%d" % end, must_keep=not last,
        )  # fmt: skip
        ran = engine.run([segment])
        assert ran.unkept == ()
        start = end
    assert same(ran.logits[0], whole(branches(5, 9, 100)))
    assert engine.rows == 60 + 9, "nothing is scanned twice"
    assert len(backend._views) == len(engine.store) == (0 if take else len(ends) - 1)


def test_a_checkpoint_that_stays_is_copied_not_moved() -> None:
    backend, engine = null()
    engine.run([Segment(VIEW[:40], keep=b"p")])
    other = np.concatenate([VIEW[:40], VIEW[:10]])
    left = engine.run([Segment(VIEW[40:], branches(5), 40, resume=b"p", keep=b"v")])
    right = engine.run([Segment(VIEW[:10], branches(5), 40, resume=b"p")])
    assert same(left.logits[0], whole(branches(5)))
    assert same(right.logits[0], whole(branches(5), other))
    assert sorted(engine.store.listing()) == [(b"p", 40), (b"v", 60)]
    assert len(backend._views) == 2


def test_segments_share_a_view_through_their_parent() -> None:
    _, engine = null()
    ran = engine.run(
        [
            Segment(VIEW, branches(5), keep=b"v"),
            Segment(VIEW[:30], branches(7)),
            Segment(branches=branches(9, 11), start=60, parent=0),
            Segment(branches=branches(13), start=60, parent=2),
        ]
    )
    assert same(ran.logits[0], whole(branches(5)))
    assert same(ran.logits[1], whole(branches(7), VIEW[:30]))
    assert same(ran.logits[2], whole(branches(9, 11)))
    assert same(ran.logits[3], whole(branches(13)))
    assert engine.rows == 90 + 15


def test_what_is_not_kept_there_is_named_before_anything_runs() -> None:
    backend = NullBackend(Limits(1000, 100, 300), cost_seconds=(1.0, 0, 0), sleep=lambda _: None)
    engine = Engine(backend)
    engine.run([Segment(VIEW[:40], keep=b"p")])
    with pytest.raises(CheckpointGoneError) as caught:
        engine.run(
            [
                Segment(VIEW[40:], start=40, resume=b"p"),
                Segment(VIEW[40:], start=40, resume=b"q"),
                Segment(VIEW[30:], start=30, resume=b"p"),
            ]
        )
    assert caught.value.keys == (b"q", b"p"), "a checkpoint of another length is no checkpoint"
    assert engine.device_seconds == 1.0
    assert len(backend._views) == 1


def test_an_end_that_must_be_kept_and_is_not_is_said() -> None:
    backend, engine = null(cache_bytes=50 * 4096)
    engine.run([Segment(VIEW[:40], keep=b"a")])
    engine.store.hold(b"a")
    ran = engine.run([Segment(VIEW[:20], branches(3)), Segment(VIEW[:30], branches(5), keep=b"b", must_keep=True)])
    assert ran.unkept == (1,)
    assert same(ran.logits[1], whole(branches(5), VIEW[:30])), "its results are sound"
    assert len(backend._views) == 1
    engine.store.let_go(b"a")
    assert engine.run([Segment(VIEW[:30], keep=b"b", must_keep=True)]).unkept == ()
    assert engine.store.listing() == [(b"b", 30)]


def test_a_longer_scan_replaces_a_shorter_one_under_the_same_key() -> None:
    backend, engine = null()
    engine.run([Segment(VIEW[:40], keep=b"k")])
    engine.run([Segment(VIEW[40:], start=40, resume=b"k", keep=b"k")])
    assert engine.store.listing() == [(b"k", 60)]
    engine.run([Segment(VIEW[:10], keep=b"k")])
    assert engine.store.listing() == [(b"k", 60)]
    assert len(backend._views) == 1


@pytest.mark.parametrize("take", [False, True])
def test_a_pass_that_breaks_leaks_nothing(take: bool) -> None:
    backend, engine = null()
    engine.run([Segment(VIEW[:40], keep=b"p")])
    real = backend.score_pass
    backend.score_pass = lambda _: (_ for _ in ()).throw(MemoryError())
    with pytest.raises(MemoryError):
        engine.run([Segment(VIEW[40:], start=40, resume=b"p", take=take, keep=b"v"), Segment(VIEW, keep=b"w")])
    backend.score_pass = real
    assert engine.store.listing() == ([] if take else [(b"p", 40)]), "what was being moved ends nobody knows where"
    assert len(backend._views) == len(engine.store)
    engine.store.clear()
    assert len(backend._views) == 0


def test_seconds_are_those_of_the_call() -> None:
    backend = NullBackend(Limits(1000, 20, 300), cost_seconds=(0.5, 0, 0), sleep=lambda _: None)
    engine = Engine(backend)
    assert engine.run([Segment(VIEW[:10], branches(1))]).seconds == 0.5
    assert engine.run([Segment(VIEW[:10], branches(*range(1, 10)))]).seconds == 1.0
    assert engine.device_seconds == 1.5


@pytest.mark.parametrize(
    ("bad", "error", "says"),
    [
        ([Segment(VIEW, start=3)], InputError, "at nothing or at a checkpoint"),
        ([Segment(VIEW, resume=b"k")], InputError, "at nothing or at a checkpoint"),
        ([Segment(VIEW), Segment(start=59, parent=0)], InputError, "does not begin where segment 0 ends"),
        ([Segment(VIEW), Segment(VIEW, start=60, parent=0)], InputError, "does not begin where segment 0 ends"),
        ([Segment(start=0, parent=0)], InputError, "a later segment"),
        ([Segment(VIEW, take=True)], InputError, "no checkpoint to move on"),
        ([Segment(VIEW, start=990, resume=b"k")], TooLargeError, "context of 1000"),
        ([Segment(np.array([300], np.int64))], InputError, "token id 300"),
    ],
)
def test_nonsense_is_refused_before_anything_runs(bad: list[Segment], error: type[InputError], says: str) -> None:
    backend = NullBackend(Limits(1000, 100, 300), cost_seconds=(1.0, 0, 0), sleep=lambda _: pytest.fail("a pass ran"))
    with pytest.raises(error) as caught:
        Engine(backend).run(bad)
    assert says in str(caught.value)


def softmax(logits: list[np.ndarray]) -> np.ndarray:
    x = np.stack(logits).astype(np.float64)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@settings(max_examples=8, deadline=None)
@given(view=st.integers(2, 300), data=st.data())
def test_a_real_view_in_pieces_gives_the_same_probabilities(view: int, data: st.DataObject) -> None:
    tokens = random_tokens(view, view).numpy()
    asked = tuple(Branch(random_tokens(7 + i, n).numpy(), np.array([10, 20, 30])) for i, n in enumerate((1, 9, 40)))
    wanted = softmax(Engine(TorchBackend(tiny_model()), cache_bytes=0).score([Work(tokens, asked)])[0])
    engine = Engine(TorchBackend(tiny_model()))
    cuts = sorted(set(data.draw(st.lists(st.integers(1, view - 1), min_size=1, max_size=3))))
    start = 0
    for end in (*cuts, view):
        take = data.draw(st.booleans()) and start > 0
        ran = engine.run([Segment(tokens[start:end], asked, start, b"%d" % start if start else None, take,
                                  keep=b"%d" % end, must_keep=True)])  # fmt: skip
        start = end
    assert np.abs(softmax(ran.logits[0]) - wanted).max() < 1e-5
    again = engine.run([Segment(branches=asked, start=view, resume=b"%d" % view)])
    assert np.abs(softmax(again.logits[0]) - wanted).max() < 1e-5


def test_a_copy_is_a_state_of_its_own() -> None:
    backend = TorchBackend(tiny_model())
    tokens = random_tokens(1, 50).numpy()
    state = backend.prefill(tokens[:20])
    copy = backend.copy(state, capacity=50)
    assert backend.state_bytes(copy) > backend.state_bytes(state), "it has room for more"
    backend.prefill(tokens[20:], copy)
    backend.release(copy)
    engine = Engine(backend)
    assert engine.store.offer(b"p", state, rows=20, nbytes=backend.state_bytes(state))
    asked = (Branch(tokens[:5], np.array([10, 20])),)
    got = engine.run([Segment(branches=asked, start=20, resume=b"p")]).logits[0]
    wanted = Engine(TorchBackend(tiny_model())).score([Work(tokens[:20], asked)])[0]
    assert np.abs(softmax(got) - softmax(wanted)).max() < 1e-5
