import numpy as np
import pytest

from mainspring.backend import PackedPass, open_backend
from mainspring.backend.handles import Handles
from mainspring.backend.null import NullBackend
from support.models import write_tiny_weights
from support.passes import one_pass


def test_logits_tell_views_branches_and_labels_apart() -> None:
    backend = NullBackend()
    a = backend.score_pass(one_pass([[1, 2]], [[7]], [[3, 4]])).logits
    assert not np.array_equal(a, backend.score_pass(one_pass([[1, 3]], [[7]], [[3, 4]])).logits)
    assert not np.array_equal(a, backend.score_pass(one_pass([[1, 2]], [[8]], [[3, 4]])).logits)
    assert np.array_equal(a[::-1], backend.score_pass(one_pass([[1, 2]], [[7]], [[4, 3]])).logits)


def test_far_labels_differ() -> None:
    backend = NullBackend()
    a, b = (backend.score_pass(one_pass([[1]], [[7]], [[label]])).logits for label in (3, 259))
    assert not np.array_equal(a, b)


def test_time_is_the_cost_model() -> None:
    slept: list[float] = []
    backend = NullBackend(cost_seconds=(0.1, 0.01, 0.001), sleep=slept.append)
    assert backend.score_pass(one_pass([[1, 2]], [[7, 8, 9]], [[3]])).seconds == pytest.approx(0.123)
    assert slept == [pytest.approx(0.123)]


def test_factory(tmp_path) -> None:
    write_tiny_weights(tmp_path)
    assert open_backend(tmp_path, "null").limits.vocab_size == 300
    assert open_backend(tmp_path, "cpu").numerics == "fp32"
    with pytest.raises(ValueError, match="known: cpu, cuda, null"):
        open_backend(tmp_path, "abacus")


def test_handles_are_never_used_twice() -> None:
    handles: Handles[str] = Handles()
    first = handles.add("a")
    handles.remove(first)
    second = handles.add("b")
    assert second != first
    for stale in (first, 99, -1):
        with pytest.raises(ValueError, match="no state has handle"):
            handles[stale]
        with pytest.raises(ValueError, match="no state has handle"):
            handles.remove(stale)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("view_tokens", [1], "view_lengths must sum"),
        ("view_states", [], "one state and keep"),
        ("branch_tokens", [], "branch_lengths must sum"),
        ("branch_views", [0, 0], "one view a branch"),
        ("label_ids", [], "label_counts must sum"),
        ("branch_lengths", [0], "branch_lengths must sum"),
    ],
)
def test_a_pass_that_does_not_add_up_is_refused(field: str, value: list[int], says: str) -> None:
    whole = one_pass([[1, 2]], [[7]], [[3]])
    parts = {name: getattr(whole, name) for name in whole.__dataclass_fields__}
    with pytest.raises(ValueError, match=says):
        PackedPass(**parts | {field: np.array(value, np.int64)})
