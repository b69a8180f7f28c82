"""Looks at held-out texts on the way: at which rows, what they come to, and the weights that did best so far.

Marks of what was never trained on can fall while the training loss goes on falling, so the last weights need not be the
ones to keep. One mark judges: the mean of the JUDGED groups' macro AUCs.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mainspring.train.arrays import Array, TrainingData
from mainspring.train.batches import base_numbers

JUDGED = ("edits_unseen", "persona_seen", "persona_unseen", "rules_unseen_wording")
ROWS, ROWS_BESIDE = 3000, 400  # a look takes of a judged group, and of each other one
Found = Mapping[str, tuple[float, int]]  # group -> (macro AUC, over how many behaviors)


def judged(groups: set[str]) -> set[str]:
    """All of them where none is known: rows of one's own have groups of their own."""
    return groups & set(JUDGED) or groups


def rows_to_look_at(data: TrainingData, split: int) -> Array:
    """The same rows every time. Of a large group whole behaviors, by chance: an AUC of a few rows says little."""
    rows, bases = np.flatnonzero(data.rows.split == split), base_numbers(data)
    rank = np.random.default_rng(0).permutation(len(bases))
    names = {str(data.groups[number]): number for number in np.unique(data.rows.group[rows])}
    matter, found = judged(set(names)), []
    for name, number in names.items():
        mine = rows[data.rows.group[rows] == number]
        order = np.argsort(rank[bases[data.rows.behavior[mine]]], kind="stable")
        found.append(mine[order[: ROWS if name in matter else ROWS_BESIDE]])
    return np.sort(np.concatenate(found)) if found else rows


def mark(found: Found) -> float:
    """NaN where nothing was found."""
    values = [found[name][0] for name in judged(set(found))]
    return float(np.mean(values)) if values else math.nan


def put(state: dict[str, Any], path: Path) -> None:
    """Written aside and moved, so that a cut leaves the last one whole."""
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


class Best:
    """The best weights so far, in a file. A look that a resumed run repeats finds them there and changes nothing."""

    def __init__(self, path: Path) -> None:
        self.path, self.mark, self.step = path, -math.inf, -1

    def offer(self, found: Found, step: int, weights: dict[str, Tensor]) -> bool:
        value = mark(found)
        if not value > self.mark:
            return False
        put({"mark": value, "step": step, "weights": weights}, self.path)
        self.mark, self.step = value, step
        return True

    def resume(self) -> None:
        if self.path.is_file():
            state = torch.load(self.path, map_location="cpu", weights_only=True)
            self.mark, self.step = state["mark"], state["step"]

    def weights(self) -> dict[str, Tensor] | None:
        if self.step < 0:
            return None
        kept: dict[str, Tensor] = torch.load(self.path, map_location="cpu", weights_only=True)["weights"]
        return kept
