"""What a node says it takes, from what its device's states weigh: no more than it can keep, no less than it could."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mainspring.backend.protocol import Limits
from mainspring.backend.torch_cpu import TorchBackend
from mainspring.engine import Branch, Engine, Segment
from mainspring.node.offering import StateSize, limits_of, state_size
from support.models import random_tokens, tiny_model

ASKED = (Branch(np.arange(1, 4), np.array([1, 2])),)


class Blocks:
    """A device whose views weigh `fixed` and whole blocks of `rows`."""

    def __init__(self, fixed: int, rows: int, context: int) -> None:
        self.limits = Limits(context, 4096, 300)
        self._fixed, self._rows = fixed, rows
        self.states: dict[int, int] = {}

    def prefill(self, tokens: np.ndarray) -> int:
        self.states[len(self.states)] = len(tokens)
        return len(self.states) - 1

    def state_bytes(self, state: int) -> int:
        return self._fixed + -(-self.states[state] // self._rows) * self._rows * 10

    def release(self, state: int) -> None:
        self.states[state] = 0


@pytest.mark.parametrize("context", [1, 2, 3, 100, 512, 5000])
@pytest.mark.parametrize("fixed", [0, 7, 100_000])
@pytest.mark.parametrize("rows", [1, 16, 64])
def test_what_fits_by_its_size_fits(context: int, fixed: int, rows: int) -> None:
    backend: Any = Blocks(fixed, rows, context)
    size = state_size(backend)
    assert not any(backend.states.values())
    for room in (fixed + 1, fixed + 10 * rows * 7, fixed + 99_999):
        tokens = min(size.tokens_in(room), context)
        if tokens:
            assert backend.state_bytes(backend.prefill(np.zeros(tokens))) <= room
    if rows == 1 and context >= 3:
        assert size == StateSize(fixed, 10)


def test_a_view_limit_is_what_the_cache_holds_in_pieces_too() -> None:
    """Pieces that go on from one another: the room that a state grew by in advance is not held against it."""
    backend = TorchBackend(tiny_model())
    size = state_size(backend)
    cache = size.fixed + 300 * size.a_token
    limit = limits_of(backend, cache, size).view_tokens
    assert limit == 300
    view, start = random_tokens(1, limit).numpy(), 0
    engine = Engine(backend, cache_bytes=cache)
    for end in (100, 200, 290, limit):
        ran = engine.run([Segment(view[start:end], (), start, b"%d" % start if start else None, start > 0,
                                  keep=b"%d" % end, must_keep=True)])  # fmt: skip
        assert ran.unkept == ()
        assert engine.store.used_bytes <= cache
        start = end
    assert engine.store.listing() == [(b"%d" % limit, limit)]
    assert len(backend._states) == 1
    got = engine.run([Segment(branches=ASKED, start=limit, resume=b"%d" % limit)]).logits[0]
    wanted = Engine(backend, cache_bytes=0).run([Segment(view, ASKED)]).logits[0]
    assert np.abs(got[0] - wanted[0]).max() < 1e-4


def test_limits_of_a_device() -> None:
    backend: Any = SimpleNamespace(limits=Limits(10_000, 4096, 300))
    size = StateSize(1000, 10)
    assert limits_of(backend, 0, size).view_tokens == 4096  # nothing is kept: a view is one pass
    assert limits_of(backend, 999, size).view_tokens == 1
    assert limits_of(backend, 21_009, size).view_tokens == 2000
    assert limits_of(backend, 1 << 40, size).view_tokens < 10_000  # a question has room left
    given = limits_of(backend, 1 << 40, size, slots=3, stream_tokens=99_999)
    assert (given.slots, given.stream_tokens, given.context_tokens) == (3, 10_000, 30_000)
