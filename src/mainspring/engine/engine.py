"""One model on one device, driven in passes: checks, packs, runs, looks after kept views, hands logits back by request.

Results do not depend on what else is in the call, on the order, on how passes were cut, or on whether a view was kept
(to 1e-5 on probabilities in fp32).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mainspring.backend.protocol import NO_STATE, Backend, PassResult
from mainspring.engine.checkpoints import CheckpointStore
from mainspring.engine.packing import NOTHING, Part, pack, plan
from mainspring.engine.work import Work
from mainspring.errors import InputError, TooLargeError

DEFAULT_CACHE_BYTES = 256 * 2**20


@dataclass
class _Progress:
    """Where one request's view is during a call."""

    state: int = NO_STATE
    pinned: bool = False  # the store owns the state
    owned: bool = False  # this call does
    logits: list[np.ndarray] = field(default_factory=list)


class Engine:
    """`cache_bytes` bounds kept views; 0 keeps none."""

    def __init__(self, backend: Backend, *, cache_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self.backend = backend
        self.store = CheckpointStore(cache_bytes, backend.release)
        self.device_seconds = 0.0
        self.rows = 0

    def score(self, works: Sequence[Work]) -> list[list[np.ndarray]]:
        """Label logits [labels] a branch, a request. Raises InputError before anything runs."""
        for i, work in enumerate(works):
            self._check(work, f"requests[{i}]")
        merged, places = _merge(works)
        results = self._score(merged)
        return [results[i][first : first + count] for i, first, count in places]

    def _score(self, works: Sequence[Work]) -> list[list[np.ndarray]]:
        progress = [self._begin(work) for work in works]
        try:
            return self._run(works, progress)
        finally:
            for work, p in zip(works, progress, strict=True):
                self._end(work, p)

    def _run(self, works: Sequence[Work], progress: list[_Progress]) -> list[list[np.ndarray]]:
        view_rows = [0 if p.state != NO_STATE else len(w.view) for w, p in zip(works, progress, strict=True)]
        passes = plan(works, view_rows, self.backend.limits.pass_rows)
        remaining = _count(passes, len(works))
        for parts in passes:
            for part in parts:
                remaining[part.request] -= 1
            self._pass(parts, works, progress, remaining)
        return [p.logits for p in progress]

    def _pass(self, parts: list[Part], works: Sequence[Work], progress: list[_Progress], remaining: list[int]) -> None:
        mine = [progress[part.request] for part in parts]
        fresh = [p.state == NO_STATE for p in mine]
        keep = [
            new and (remaining[part.request] > 0 or self._wants(works[part.request]))
            for part, new in zip(parts, fresh, strict=True)
        ]
        views = [works[part.request].view if new else NOTHING for part, new in zip(parts, fresh, strict=True)]
        result = self.backend.score_pass(pack(parts, views, [p.state for p in mine], keep))
        self.device_seconds += result.seconds
        self.rows += sum(map(len, views)) + sum(part.rows for part in parts)
        for p, state, new in zip(mine, result.states, fresh, strict=True):
            if new and state != NO_STATE:
                p.state, p.owned = state, True
        _distribute(parts, result, mine)
        for part, p in zip(parts, mine, strict=True):
            if not remaining[part.request]:  # at once: the states of all requests together may exceed any budget
                self._end(works[part.request], p)

    def _check(self, work: Work, where: str) -> None:
        limits = self.backend.limits
        longest = max((len(branch.tokens) for branch in work.branches), default=0)
        if len(work.view) + longest > limits.context_tokens:
            raise TooLargeError(
                f"view of {len(work.view)} tokens and a branch of {longest} exceed the model's context of "
                f"{limits.context_tokens} tokens",
                limit=limits.context_tokens,
                actual=len(work.view) + longest,
                param=where,
            )
        for j, branch in enumerate(work.branches):
            if not len(branch.tokens) or not len(branch.label_ids):
                raise InputError("a branch needs at least one token and one label", param=f"{where}.branches[{j}]")
        arrays = [work.view, *(a for branch in work.branches for a in (branch.tokens, branch.label_ids))]
        top = max((int(a.max()) for a in arrays if len(a)), default=0)
        low = min((int(a.min()) for a in arrays if len(a)), default=0)
        if top >= limits.vocab_size or low < 0:
            raise InputError(
                f"token id {top if low >= 0 else low} is outside the model's vocabulary of {limits.vocab_size}",
                param=where,
            )

    def _wants(self, work: Work) -> bool:
        return work.view_key is not None and self.store.budget_bytes > 0

    def _begin(self, work: Work) -> _Progress:
        state = self.store.acquire(work.view_key) if work.view_key is not None else None
        return _Progress() if state is None else _Progress(state, pinned=True)

    def _end(self, work: Work, p: _Progress) -> None:
        """Hand the state to the store, or free it; nothing the second time."""
        pinned, owned, p.pinned, p.owned = p.pinned, p.owned, False, False
        if pinned and work.view_key is not None:
            self.store.unpin(work.view_key)
        if not owned:
            return
        nbytes = self.backend.state_bytes(p.state)
        taken = work.view_key is not None and self.store.offer(
            work.view_key, p.state, rows=len(work.view), nbytes=nbytes
        )
        if not taken:
            self.backend.release(p.state)


def _merge(works: Sequence[Work]) -> tuple[list[Work], list[tuple[int, int, int]]]:
    """Requests on one view become one; a place says where each one's branches went: (request, first, count)."""
    merged: list[Work] = []
    by_key: dict[bytes, int] = {}
    places: list[tuple[int, int, int]] = []
    for work in works:
        i = by_key.get(work.view_key, len(merged)) if work.view_key is not None else len(merged)
        if i == len(merged):
            merged.append(work)
            places.append((i, 0, len(work.branches)))
            if work.view_key is not None:
                by_key[work.view_key] = i
        else:
            into = merged[i]
            if not np.array_equal(into.view, work.view):
                raise InputError("another view has the same key", param=f"requests[{len(places)}].view_key")
            places.append((i, len(into.branches), len(work.branches)))
            merged[i] = Work(into.view, into.branches + work.branches, into.view_key)
    return merged, places


def _count(passes: list[list[Part]], requests: int) -> list[int]:
    counts = [0] * requests
    for parts in passes:
        for part in parts:
            counts[part.request] += 1
    return counts


def _distribute(parts: list[Part], result: PassResult, progress: list[_Progress]) -> None:
    at = 0
    for part, p in zip(parts, progress, strict=True):
        for branch in part.branches:
            p.logits.append(result.logits[at : at + len(branch.label_ids)])
            at += len(branch.label_ids)
