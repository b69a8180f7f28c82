"""Work -> passes. A pass takes views and branches until its row limit; a request too big for one is split by branches.

The first part of a split request keeps its view's state, the others fork it, so a view is scanned once however many
passes its branches need. Results come back by (request, branch), whatever the passes were.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mainspring.backend.protocol import PackedPass
from mainspring.engine.work import Branch


@dataclass
class Part:
    """Some branches of one request in one pass."""

    request: int
    first_branch: int
    branches: list[Branch] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(len(branch.tokens) for branch in self.branches)


def plan(requests: Sequence[Sequence[Branch]], view_rows: Sequence[int], pass_rows: int) -> list[list[Part]]:
    """Parts a pass, in order, of requests' branches. `view_rows[i]` is what request i's view costs in its first pass
    (0 when it is kept).

    A view longer than `pass_rows` stands alone in its pass with as many branches as one pass holds.
    """
    passes: list[list[Part]] = []
    current: list[Part] = []
    used = 0

    def close() -> None:
        nonlocal current, used
        if current:
            passes.append(current)
        current, used = [], 0

    for i, branches in enumerate(requests):
        view = view_rows[i]
        if current and used + view + sum(len(branch.tokens) for branch in branches) > pass_rows:
            close()
        part = Part(i, 0)
        current.append(part)
        used += view
        for j, branch in enumerate(branches):
            if part.branches and used + len(branch.tokens) > pass_rows:
                close()
                part = Part(i, j)
                current.append(part)
            part.branches.append(branch)
            used += len(branch.tokens)
    close()
    return passes


def pack(parts: Sequence[Part], views: Sequence[np.ndarray], states: Sequence[int], keep: Sequence[bool]) -> PackedPass:
    """One pass; views[i], states[i], keep[i] belong to parts[i] (an empty view forks its state as it is)."""
    branches = [branch for part in parts for branch in part.branches]
    return PackedPass(
        view_tokens=_concatenate(views),
        view_lengths=np.array([len(view) for view in views], np.int64),
        view_states=np.array(states, np.int64),
        keep=np.array(keep, np.bool_),
        branch_tokens=_concatenate([branch.tokens for branch in branches]),
        branch_lengths=np.array([len(branch.tokens) for branch in branches], np.int64),
        branch_views=np.repeat(np.arange(len(parts)), [len(part.branches) for part in parts]).astype(np.int64),
        label_ids=_concatenate([branch.label_ids for branch in branches]),
        label_counts=np.array([len(branch.label_ids) for branch in branches], np.int64),
    )


def _concatenate(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.asarray(a, np.int64) for a in arrays]) if arrays else np.zeros(0, np.int64)
