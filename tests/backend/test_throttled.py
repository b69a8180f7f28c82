import numpy as np
import pytest

from mainspring.backend.null import NullBackend
from mainspring.backend.throttled import ThrottledBackend
from mainspring.engine import Branch, Engine, Work
from support.passes import one_pass


def test_it_waits_and_says_so() -> None:
    slept: list[float] = []
    inner = NullBackend(cost_seconds=(0.1, 0.0, 0.0), sleep=lambda _: None)
    slow = ThrottledBackend(inner, 4.0, slept.append)
    packed = one_pass([[1, 2]], [[7]], [[3, 4]])
    result = slow.score_pass(packed)
    assert result.seconds == pytest.approx(0.4)
    assert slept == [pytest.approx(0.3)]
    assert np.array_equal(result.logits, inner.score_pass(packed).logits)
    assert "4 times" in slow.device


def test_an_engine_runs_on_it_and_frees_what_it_kept() -> None:
    inner = NullBackend()
    engine = Engine(ThrottledBackend(inner, 2.0))
    work = Work(np.arange(5), (Branch(np.array([1]), np.array([2])),), b"k")
    assert np.array_equal(engine.score([work])[0][0], engine.score([work])[0][0])
    assert engine.store.hits == 1
    engine.store.clear()
    assert len(inner._views) == 0


@pytest.mark.parametrize("factor", [0.5, 2000.0, float("nan")])
def test_it_is_never_made_faster(factor: float) -> None:
    with pytest.raises(ValueError, match="1 to 1000 times slower"):
        ThrottledBackend(NullBackend(), factor)
