"""What the engine is asked to do: token ids and label ids, no text."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]


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
