"""One view during one call of the engine: where its state is, who owns it, what becomes of its end."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mainspring.backend.protocol import NO_STATE, Backend, PassResult
from mainspring.engine.checkpoints import CheckpointStore
from mainspring.engine.packing import Part
from mainspring.engine.work import NO_TOKENS, Branch, CheckpointGoneError, Segment, Tokens, Work


@dataclass
class Task:
    """`view` is what is still to be scanned, `end` the position after it."""

    view: Tokens
    branches: tuple[Branch, ...]
    end: int
    keep: bytes | None = None
    must_keep: bool = False
    state: int = NO_STATE
    pinned: bytes | None = None  # the store owns the state, under this key
    owned: bool = False  # this call does
    went_on: bool = False  # from where an earlier piece left it: it may have grown by more than it needs
    complete: bool = False
    unkept: bool = False
    logits: list[np.ndarray] = field(default_factory=list)

    @property
    def is_fresh(self) -> bool:
        """It starts from nothing and was not scanned yet: the state, if wanted, has to be asked for."""
        return self.state == NO_STATE

    def wants(self, store: CheckpointStore) -> bool:
        return self.keep is not None and (store.budget_bytes > 0 or self.must_keep)

    def to_scan(self) -> Tokens:
        """Once: the first pass scans, the others only fork."""
        view, self.view = self.view, NO_TOKENS
        return view

    def scanned(self, state: int) -> None:
        if self.state == NO_STATE and state != NO_STATE:
            self.state, self.owned = state, True


def begin_work(store: CheckpointStore, work: Work) -> Task:
    """From the kept view where there is one."""
    key, end = work.view_key, len(work.view)
    state = store.acquire(key) if key is not None else None
    if state is None:
        return Task(work.view, work.branches, end, keep=key)
    return Task(NO_TOKENS, work.branches, end, state=state, pinned=key)


def begin_segment(store: CheckpointStore, backend: Backend, segment: Segment) -> Task:
    """CheckpointGoneError where what it resumes from is not kept."""
    task = Task(segment.tokens, segment.branches, segment.end, segment.keep, segment.must_keep)
    if segment.resume is None:
        return task
    if segment.take:
        taken = store.take(segment.resume)
        if taken is None:
            raise CheckpointGoneError((segment.resume,))
        task.state, task.owned, task.went_on = taken, True, True
        return task
    kept = store.acquire(segment.resume)
    if kept is None:
        raise CheckpointGoneError((segment.resume,))
    task.state, task.pinned = kept, segment.resume
    if len(segment.tokens):
        try:
            task.state = backend.copy(kept, capacity=segment.end)
        finally:
            store.unpin(segment.resume)
        task.pinned, task.owned = None, True
    return task


def finish(store: CheckpointStore, backend: Backend, task: Task) -> None:
    """Hand the state to the store, or free it; nothing the second time."""
    pinned, owned, task.pinned, task.owned = task.pinned, task.owned, None, False
    if pinned is not None:
        store.unpin(pinned)
    if task.is_fresh and task.complete and task.keep is not None:
        store.touch(task.keep)
    if not owned:
        return
    key = task.keep if task.complete else None  # a scan cut short by an error ends nobody knows where
    if key is not None and (store.rows(key) or task.end) < task.end:
        store.drop(key)
    taken = key is not None and _offer(store, backend, key, task)
    if not taken and key is not None and task.went_on and store.rows(key) is None:
        _trim(backend, task)
        taken = _offer(store, backend, key, task)
    if not taken:
        backend.release(task.state)
    task.unkept = key is not None and task.must_keep and store.rows(key) != task.end


def _offer(store: CheckpointStore, backend: Backend, key: bytes, task: Task) -> bool:
    return store.offer(key, task.state, rows=task.end, nbytes=backend.state_bytes(task.state))


def _trim(backend: Backend, task: Task) -> None:
    """Leave it no room beyond its rows: views are limited by what those take. The old one is freed, come what may."""
    grown = task.state
    try:
        task.state = backend.copy(grown)
    finally:
        backend.release(grown)


def distribute(parts: Sequence[Part], result: PassResult, tasks: Sequence[Task]) -> None:
    """Hand each task the logits of its branches of one pass."""
    at = 0
    for part, task in zip(parts, tasks, strict=True):
        for branch in part.branches:
            task.logits.append(result.logits[at : at + len(branch.label_ids)])
            at += len(branch.label_ids)
