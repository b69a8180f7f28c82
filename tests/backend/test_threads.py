import pytest
import torch

from mainspring.backend.threads import _median_seconds, choose_threads


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [({4: 1.0, 2: 2.0, 1: 4.0}, 4), ({4: 9.0, 2: 2.0, 1: 4.0}, 2), ({4: 9.0, 2: 8.0, 1: 4.0}, 1)],
)
def test_the_fastest_wins(seconds: dict[int, float], chosen: int) -> None:
    assert choose_threads(4, seconds.__getitem__) == chosen


def test_one_core_needs_no_measurement() -> None:
    assert choose_threads(1, lambda _: pytest.fail("measured")) == 1


def test_measuring_leaves_the_setting_alone() -> None:
    before = torch.get_num_threads()
    assert _median_seconds(2) > 0
    assert torch.get_num_threads() == before
