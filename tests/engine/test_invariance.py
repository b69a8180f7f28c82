"""A branch's probabilities are its own: alone, reordered, sharded, beside others, view kept or not, and naively.

fp32, to 1e-5 on probabilities, over ragged branches of 1 to 200 tokens and views of 1 to 20,000.
"""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.backend.protocol import Limits
from mainspring.backend.torch_cpu import TorchBackend
from mainspring.engine import Branch, Engine, Work
from support.models import random_tokens, tiny_model

TOLERANCE = 1e-5
MODEL = tiny_model()
LABELS = np.array([10, 20, 30], np.int64)


def engine(pass_rows: int = 65_536, cache_bytes: int = 0) -> Engine:
    backend = TorchBackend(tiny_model())
    backend.limits = Limits(32_768, pass_rows, 300)
    return Engine(backend, cache_bytes=cache_bytes)


def make(seed: int, view: int, branches: Sequence[int], key: bytes | None = None) -> Work:
    tokens = [random_tokens(1000 * seed + i, n).numpy() for i, n in enumerate((view, *branches))]
    return Work(tokens[0], tuple(Branch(t, LABELS) for t in tokens[1:]), key)


def probabilities(logits: Sequence[np.ndarray]) -> np.ndarray:
    x = np.stack(logits).astype(np.float64)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def naive(work: Work) -> np.ndarray:
    rows = []
    with torch.inference_mode():
        for branch in work.branches:
            tokens = torch.from_numpy(np.concatenate([work.view, branch.tokens]))
            hidden = MODEL.extend(tokens, [len(tokens)], [MODEL.new_state()], update=True, outputs="all")
            rows.append(MODEL.logits(hidden[-1:], torch.from_numpy(LABELS))[0].numpy())
    return probabilities(rows)


def worst(got: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(got - wanted).max())


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    view=st.integers(1, 400),
    branches=st.lists(st.integers(1, 200), min_size=1, max_size=5),
    other_view=st.integers(1, 300),
    other_branches=st.lists(st.integers(1, 60), min_size=1, max_size=3),
    order=st.randoms(use_true_random=False),
    pass_rows=st.sampled_from([1, 300, 65_536]),
)
def test_invariance(
    seed: int, view: int, branches: list[int], other_view: int, other_branches: list[int], order, pass_rows: int
) -> None:
    work, other = make(seed, view, branches, b"w"), make(seed + 1, other_view, other_branches, b"o")
    wanted = naive(work)
    together = engine().score([work])[0]
    assert worst(probabilities(together), wanted) < TOLERANCE

    alone = [engine().score([Work(work.view, (branch,))])[0][0] for branch in work.branches]
    assert worst(probabilities(alone), wanted) < TOLERANCE

    places = list(range(len(branches)))
    order.shuffle(places)
    shuffled = engine().score([Work(work.view, tuple(work.branches[i] for i in places))])[0]
    assert worst(probabilities([shuffled[places.index(i)] for i in range(len(places))]), wanted) < TOLERANCE

    sharing = engine(pass_rows=pass_rows, cache_bytes=2**26)
    beside = sharing.score([other, work])[1]
    assert worst(probabilities(beside), wanted) < TOLERANCE
    kept = sharing.score([work, other])[0]
    assert sharing.store.hits == 2
    assert worst(probabilities(kept), wanted) < TOLERANCE


@pytest.mark.parametrize("view", [1, 2047, 2049, 20_000])
def test_invariance_over_long_views(view: int) -> None:
    work = make(view, view, [1, 40, 200], b"v")
    wanted = naive(work)
    shared = engine(cache_bytes=2**30)
    assert worst(probabilities(shared.score([work])[0]), wanted) < TOLERANCE
    assert worst(probabilities(shared.score([work])[0]), wanted) < TOLERANCE
    assert shared.store.hits == 1


def test_invariance_check_sees_a_leak() -> None:
    """Branches chained instead of forked (each sees the ones before it) differ by far more than the tolerance."""
    work = make(3, 50, [20, 20])
    chained = Work(np.concatenate([work.view, work.branches[0].tokens]), work.branches[1:])
    assert worst(probabilities(engine().score([chained])[0]), naive(work)[1:]) > 100 * TOLERANCE
