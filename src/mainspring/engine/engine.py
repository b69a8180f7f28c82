"""One model on one device, driven in passes: checks, packs, runs, looks after kept views, hands logits back by request.

`score` takes whole requests and looks kept views up by itself; `run` takes stretches of views and does exactly what it
is told. Results do not depend on what else is in the call, on the order, on how passes or views were cut, or on whether
a view was kept (to 1e-5 on probabilities in fp32).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mainspring.backend.protocol import Backend
from mainspring.engine.checkpoints import CheckpointStore
from mainspring.engine.checks import check_segment, check_work
from mainspring.engine.packing import Part, pack, plan
from mainspring.engine.tasks import Task, begin_segment, begin_work, distribute, finish
from mainspring.engine.work import CheckpointGoneError, Segment, Work
from mainspring.errors import InputError

DEFAULT_CACHE_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Ran:
    """`logits` [labels] a branch, a segment. `seconds`: device time of this call, after a sync. `unkept`: segments with
    `must_keep` whose end found no room."""

    logits: list[list[np.ndarray]]
    seconds: float
    unkept: tuple[int, ...] = ()


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
            check_work(self.backend.limits, work, f"requests[{i}]")
        merged, places = _merge(works)
        tasks = [begin_work(self.store, work) for work in merged]
        self._run(tasks)
        return [tasks[i].logits[first : first + count] for i, first, count in places]

    def run(self, segments: Sequence[Segment]) -> Ran:
        """Raises InputError and CheckpointGoneError before anything runs."""
        for i in range(len(segments)):
            check_segment(self.backend.limits, segments, i, f"segments[{i}]")
        gone = [s.resume for s in segments if s.resume is not None and self.store.rows(s.resume) != s.start]
        if gone:
            raise CheckpointGoneError(tuple(dict.fromkeys(gone)))
        merged, places = _merge_segments(segments)
        before = self.device_seconds
        tasks: list[Task] = []
        try:
            tasks.extend(begin_segment(self.store, self.backend, segment) for segment in merged)
        except BaseException:
            for task in tasks:
                finish(self.store, self.backend, task)
            raise
        self._run(tasks)
        logits = [tasks[i].logits[first : first + count] for i, first, count in places]
        unkept = tuple(i for i, s in enumerate(segments) if s.must_keep and tasks[places[i][0]].unkept)
        return Ran(logits, self.device_seconds - before, unkept)

    def _run(self, tasks: Sequence[Task]) -> None:
        try:
            view_rows = [len(task.view) for task in tasks]
            passes = plan([task.branches for task in tasks], view_rows, self.backend.limits.pass_rows)
            remaining = _count(passes, len(tasks))
            for parts in passes:
                for part in parts:
                    remaining[part.request] -= 1
                self._pass(parts, tasks, remaining)
        finally:
            for task in tasks:
                finish(self.store, self.backend, task)

    def _pass(self, parts: list[Part], tasks: Sequence[Task], remaining: list[int]) -> None:
        mine = [tasks[part.request] for part in parts]
        keep = [
            task.is_fresh and (remaining[part.request] > 0 or task.wants(self.store))
            for part, task in zip(parts, mine, strict=True)
        ]
        views = [task.to_scan() for task in mine]
        result = self.backend.score_pass(pack(parts, views, [task.state for task in mine], keep))
        self.device_seconds += result.seconds
        self.rows += sum(map(len, views)) + sum(part.rows for part in parts)
        for task, state in zip(mine, result.states, strict=True):
            task.scanned(state)
        distribute(parts, result, mine)
        for part, task in zip(parts, mine, strict=True):
            if not remaining[part.request]:  # at once: the states of all requests together may exceed any budget
                task.complete = True
                finish(self.store, self.backend, task)


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


def _merge_segments(segments: Sequence[Segment]) -> tuple[list[Segment], list[tuple[int, int, int]]]:
    """A segment with a parent becomes branches of it; places as in `_merge`."""
    merged: list[Segment] = []
    places: list[tuple[int, int, int]] = []
    for segment in segments:
        if segment.parent < 0:
            merged.append(segment)
            places.append((len(merged) - 1, 0, len(segment.branches)))
        else:
            at = places[segment.parent][0]
            into = merged[at]
            places.append((at, len(into.branches), len(segment.branches)))
            merged[at] = _joined(into, segment)
    return merged, places


def _joined(into: Segment, more: Segment) -> Segment:
    """`into` with the branches of `more`, kept under whichever key either asks for."""
    return Segment(
        into.tokens, into.branches + more.branches, into.start, into.resume, into.take, into.parent,
        more.keep if into.keep is None else into.keep, into.must_keep or more.must_keep,
    )  # fmt: skip


def _count(passes: list[list[Part]], requests: int) -> list[int]:
    counts = [0] * requests
    for parts in passes:
        for part in parts:
            counts[part.request] += 1
    return counts
