"""A device without maths: right shapes, right times, deterministic logits. For tests of everything above a backend.

The logits of a branch are a hash of its view's tokens, its own tokens and each label id, so a mixed-up branch, view or
label shows; a pass takes `c0 + c1 * view rows + c2 * branch rows` seconds, by default none, spent in `sleep`. Its slots
are `null_slots`: a round takes `round_seconds` (itself, a slot, a token of context).
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mainspring.backend.generation import GenerationBackend, SlotLimits
from mainspring.backend.handles import Handles
from mainspring.backend.null_slots import NullSlots, NullTimes
from mainspring.backend.protocol import NO_STATE, FloatArray, IntArray, Limits, PackedPass, PassResult
from mainspring.model.config import read_config

_TOKEN_BYTES = 4096  # what a kept view token is said to weigh


@dataclass
class NullBackend:
    limits: Limits = field(default_factory=lambda: Limits(262_144, 65_536, 248_320))
    cost_seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)
    sleep: Callable[[float], None] = time.sleep
    numerics: str = "fp32"
    device: str = "null"
    round_seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)
    acceptance: float | None = None

    def __post_init__(self) -> None:
        self._views: Handles[IntArray] = Handles()

    @classmethod
    def open(cls, path: Path) -> "NullBackend":
        config = read_config(path)
        return cls(Limits(config.max_position_embeddings, 65_536, config.vocab_size))

    def score_pass(self, work: PackedPass) -> PassResult:
        views, handles = [], []
        news = np.split(work.view_tokens, np.cumsum(work.view_lengths)[:-1]) if len(work.view_lengths) else []
        for tokens, handle, keep in zip(news, work.view_states.tolist(), work.keep.tolist(), strict=True):
            view = tokens if handle == NO_STATE else np.concatenate([self._views[handle], tokens])
            views.append(view)
            if handle != NO_STATE:
                self._views.replace(handle, view)
            handles.append(handle if handle != NO_STATE else self._views.add(view) if keep else NO_STATE)
        seconds = float(np.dot(self.cost_seconds, (1, len(work.view_tokens), len(work.branch_tokens))))
        if seconds > 0:
            self.sleep(seconds)
        return PassResult(_logits(work, views), tuple(handles), seconds)

    def prefill(self, tokens: IntArray, state: int = NO_STATE, *, capacity: int = 0) -> int:  # noqa: ARG002
        if state == NO_STATE:
            return self._views.add(np.asarray(tokens))
        self._views.replace(state, np.concatenate([self._views[state], tokens]))
        return state

    def copy(self, state: int, *, capacity: int = 0) -> int:  # noqa: ARG002
        return self._views.add(self._views[state])

    def state_bytes(self, state: int) -> int:
        return len(self._views[state]) * _TOKEN_BYTES

    def generation(self, limits: SlotLimits) -> GenerationBackend:
        c0, c1, _ = self.cost_seconds
        return NullSlots(
            limits, context_tokens=self.limits.context_tokens, vocab_size=limits.vocab_size or self.limits.vocab_size,
            times=NullTimes(c0, c1, *self.round_seconds), sleep=lambda seconds: self.sleep(seconds),
            acceptance=self.acceptance,
        )  # fmt: skip

    def release(self, state: int) -> None:
        self._views.remove(state)


def _logits(work: PackedPass, views: list[IntArray]) -> FloatArray:
    out: list[float] = []
    read = [hashlib.sha256(view.astype("<i8").tobytes() + b"|") for view in views]
    branches = np.split(work.branch_tokens, np.cumsum(work.branch_lengths)[:-1]) if len(work.branch_lengths) else []
    labels = np.split(work.label_ids, np.cumsum(work.label_counts)[:-1]) if len(work.label_counts) else []
    for tokens, view, ids in zip(branches, work.branch_views.tolist(), labels, strict=True):
        seen = read[view].copy()  # a view is read once for all of its branches: nothing but `sleep` takes the time
        seen.update(tokens.astype("<i8").tobytes())
        for label in ids.tolist():
            digest = hashlib.sha256(seen.digest() + int(label).to_bytes(8, "little")).digest()
            out.append(int.from_bytes(digest[:4], "little") / 2**31 - 1.0)
    return np.asarray(out, np.float32)
