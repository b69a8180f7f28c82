"""Hand-made packed passes."""

import numpy as np

from mainspring.backend import PackedPass
from mainspring.backend.protocol import NO_STATE


def one_pass(
    views: list[list[int]],
    branches: list[list[int]],
    labels: list[list[int]],
    *,
    parents: list[int] | None = None,
    states: list[int] | None = None,
    keep: bool = False,
) -> PackedPass:
    def flat(lists: list[list[int]]) -> np.ndarray:
        return np.array([x for inner in lists for x in inner], np.int64)

    def lengths(lists: list[list[int]]) -> np.ndarray:
        return np.array([len(inner) for inner in lists], np.int64)

    return PackedPass(
        view_tokens=flat(views),
        view_lengths=lengths(views),
        view_states=np.array(states or [NO_STATE] * len(views), np.int64),
        keep=np.full(len(views), keep),
        branch_tokens=flat(branches),
        branch_lengths=lengths(branches),
        branch_views=np.array(parents if parents is not None else [0] * len(branches), np.int64),
        label_ids=flat(labels),
        label_counts=lengths(labels),
    )
