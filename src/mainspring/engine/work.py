"""What the engine is asked to do: token ids and label ids, no text."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mainspring.errors import MainspringError

Tokens = NDArray[np.int64]
NO_TOKENS: Tokens = np.zeros(0, np.int64)


class CheckpointGoneError(MainspringError):
    """A checkpoint that work builds on is not kept, or not at that position. `keys` names all that are missing."""

    code = "checkpoint_gone"

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        super().__init__(f"{len(keys)} checkpoints that this work builds on are not here")
        self.keys = keys


@dataclass(frozen=True)
class Branch:
    """One question: its tokens, read after the view, and the ids whose logits answer it."""

    tokens: Tokens
    label_ids: Tokens


@dataclass(frozen=True)
class Work:
    """One request: a view and its branches. `view_key` names the view among kept ones (equal keys, equal tokens)."""

    view: Tokens
    branches: tuple[Branch, ...]
    view_key: bytes | None = field(default=None)

    @property
    def branch_rows(self) -> int:
        return sum(len(branch.tokens) for branch in self.branches)


@dataclass(frozen=True)
class Segment:
    """A stretch of a view, positions `start` to `end`, and branches that fork its end.

    Begins at nothing (`start` 0), at the checkpoint `resume`, or at the end of an earlier segment of the same call
    (`parent`; then it has no tokens of its own). `take` moves the checkpoint itself on, so it is gone afterwards; else
    it stays, and is copied where there are tokens to add. The end is kept under `keep` if there is room; `must_keep`:
    more work is to build on it, so the caller wants to know (`Ran.unkept`).
    """

    tokens: Tokens = field(default_factory=lambda: NO_TOKENS)
    branches: tuple[Branch, ...] = ()
    start: int = 0
    resume: bytes | None = None
    take: bool = False
    parent: int = -1
    keep: bytes | None = None
    must_keep: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)

    @property
    def rows(self) -> int:
        """Of its branches."""
        return sum(len(branch.tokens) for branch in self.branches)
