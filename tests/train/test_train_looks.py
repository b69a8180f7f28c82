"""Which held-out rows a look takes, what it comes to, and that the best weights are kept."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from mainspring.train import looks
from mainspring.train.arrays import Ragged, Rows, TrainingData
from mainspring.train.looks import Best, judged, mark, rows_to_look_at
from mainspring.train.splits import CALIBRATION

GROUPS = ("edits", "edits_unseen")


@pytest.fixture
def data() -> TrainingData:
    """6,000 rows of common edits of 40 behaviors and 300 of unseen ones, every other row held out."""
    count = 6300
    zeros = np.zeros(count, np.int32)
    group = np.repeat([0, 1], [6000, 300])
    behavior = np.where(group == 0, np.arange(count) % 40, 40 + np.arange(count) % 3)
    split = np.where(np.arange(count) // 120 % 2, CALIBRATION, 0)
    return TrainingData(
        views=Ragged.of([[1]], np.uint16),
        definitions=Ragged.of([[1]], np.uint16),
        wordings=Ragged.of([[0]] * 43, np.int32),
        rows=Rows(zeros, behavior, zeros, np.ones(count, np.float16), split, group, zeros),
        label_ids=np.arange(3),
        behaviors=np.array([f"b{i}" for i in range(43)]),
        groups=np.array(GROUPS),
        texts=np.array(["a"]),
    )


def test_rare_groups_are_looked_at_whole_and_large_ones_by_behavior(data: TrainingData) -> None:
    rows = rows_to_look_at(data, CALIBRATION)
    assert np.array_equal(rows, rows_to_look_at(data, CALIBRATION))
    assert (data.rows.split[rows] == CALIBRATION).all()
    unseen, common = (rows[data.rows.group[rows] == number] for number in (1, 0))
    assert len(unseen) == ((data.rows.group == 1) & (data.rows.split == CALIBRATION)).sum()
    assert len(common) == looks.ROWS_BESIDE
    many = np.bincount(data.rows.behavior[common], minlength=40)
    assert (many > 0).sum() < 8
    assert not len(rows_to_look_at(data, 2))


def test_a_mark_is_the_mean_of_judged_groups_however_many_behaviors_they_have() -> None:
    assert mark({"edits_unseen": (0.9, 3), "persona_unseen": (0.6, 1), "edits": (0.1, 50)}) == pytest.approx(0.75)
    assert mark({"mine": (0.7, 2)}) == pytest.approx(0.7)
    assert math.isnan(mark({}))
    assert judged({"mine", "natural"}) == {"mine", "natural"}


def test_the_best_is_kept_and_found_again(tmp_path: Path) -> None:
    best = Best(tmp_path / "best.pt")
    assert best.weights() is None
    offers = [({}, False), ((0.6, 2), True), ((0.8, 2), True), ((0.7, 9), False), ((0.8, 2), False)]
    for step, (value, taken) in enumerate(offers):
        found = {"edits_unseen": value} if value else {}
        assert best.offer(found, step, {"w": torch.full((2,), float(step))}) is taken  # type: ignore[arg-type]
    again = Best(tmp_path / "best.pt")
    assert again.weights() is None  # of another run, as long as it does not go on
    again.resume()
    assert (again.step, again.mark) == (2, pytest.approx(0.8))
    weights = again.weights()
    assert weights is not None
    assert weights["w"].tolist() == [2.0, 2.0]
