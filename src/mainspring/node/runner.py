"""The one place that touches the engine: the scheduler's next job, in the one worker thread.

The next pass is decoded and checked on the loop while one runs, so the device does not wait for it. Whatever is raised
becomes an `Outcome`; the thread lives on. `Runner` wires scheduler, worker and link together: it has no opinion.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from mainspring.engine import CheckpointGoneError, Engine, Segment
from mainspring.faultlog import log_fault
from mainspring.node.jobs import Job, PassJob, ProbeJob, Say
from mainspring.node.outcome import Outcome
from mainspring.node.scheduler import Scheduler
from mainspring.node.tasks import Task
from mainspring.node.writer import Writer, Wrote

log = logging.getLogger(__name__)
Clock = Callable[[], float]
CallLater = Callable[[float, Callable[[], None]], object]


def execute(engine: Engine, task: Task, clock: Clock, writer: Writer | None = None) -> Outcome:
    """Never raises. The time is the device's, or the whole call's where that is longer: the node was busy so long.

    Prompts are scanned whatever becomes of the segments: each part of a pass has its own answer."""
    began_s, before = clock(), engine.device_seconds
    if writer is not None:
        writer.cancel(task.cancels)
    outcome = _segments(engine, task.segments) if task.segments else Outcome()
    wrote = Wrote() if writer is None else writer.run(task.chunks, task.round)
    seconds = max(clock() - began_s, engine.device_seconds - before)
    return replace(outcome, seconds=seconds, wrote=wrote)


def _segments(engine: Engine, segments: Sequence[Segment]) -> Outcome:
    try:
        ran = engine.run(segments)
    except CheckpointGoneError as gone:
        return Outcome(error=gone, missing=gone.keys)
    except Exception as error:  # one pass's fault never stops the loop
        return Outcome(error=error)
    return Outcome(ran.logits, unkept=ran.unkept)


class Worker(Protocol):
    """Runs one task at a time, elsewhere, and says `done` on the loop."""

    def start(self, task: Task, done: Callable[[Outcome], None]) -> None: ...


class ThreadWorker:
    """One thread, so that whatever a device library binds to a thread stays bound."""

    def __init__(
        self,
        engine: Engine,
        executor: ThreadPoolExecutor,
        clock: Clock,
        to_loop: Callable[[Callable[[], None]], object],
        writer: Writer | None = None,
    ) -> None:
        """`executor` has one thread, the one that opened the engine; `to_loop(function)` runs it on the loop."""
        self._engine, self._executor, self._clock, self._to_loop = engine, executor, clock, to_loop
        self._writer = writer

    def start(self, task: Task, done: Callable[[Outcome], None]) -> None:
        future = self._executor.submit(execute, self._engine, task, self._clock, self._writer)

        def hand_over(finished: "Future[Outcome]") -> None:
            if finished.cancelled():
                return
            with suppress(RuntimeError):  # the loop is closed: nobody is left to hear of it
                self._to_loop(lambda: done(finished.result()))

        future.add_done_callback(hand_over)


class Link(Protocol):
    """Where says go; `serial` is the scheduler's number of it. `full`: nobody takes what is said."""

    serial: int

    @property
    def full(self) -> bool: ...

    def say(self, says: Sequence[Say]) -> None: ...

    def poll(self) -> None: ...


class Runner:
    def __init__(self, scheduler: Scheduler, worker: Worker, clock: Clock, call_later: CallLater) -> None:
        self.scheduler = scheduler
        self.link: Link | None = None
        self._worker, self._clock, self._call_later = worker, clock, call_later
        self._due_s = float("inf")

    def say(self, says: Sequence[Say]) -> None:
        """What is meant for a link that is gone is dropped."""
        if self.link is not None and says:
            self.link.say([say for say in says if say.link == self.link.serial])

    def turn(self, says: Sequence[Say] = ()) -> None:
        """After anything that may have changed what to do next; `says` go out first. The device is given its next job
        before anything is encoded: it does not wait for what it has just done to be told."""
        self.scheduler.full = self.link is not None and self.link.full
        turn = self.scheduler.next(self._clock())
        if turn.job is not None:
            self._start(turn.job, turn.task)
        self.say([*says, *turn.says])
        if self.link is not None:
            self.link.poll()
        self._wake(self.scheduler.deadline_s())

    def _start(self, job: Job, task: Task) -> None:
        self._worker.start(task, lambda outcome: self._finished(job, outcome))

    def _finished(self, job: Job, outcome: Outcome) -> None:
        if isinstance(job, PassJob) and outcome.error is not None:
            _tell(job.work.fence.pass_id, outcome.error)
        elif isinstance(job, ProbeJob) and outcome.error is not None:
            log.warning("a measurement failed: %s", type(outcome.error).__name__)
        try:
            says = self.scheduler.finished(job, outcome, self._clock())
        except Exception as error:  # the loop goes on
            log_fault(log, error, "a fault while taking in what the device did")
            says = self.scheduler.faulted(job, self._clock())
        self.turn(says)

    def _wake(self, due_s: float) -> None:
        """One timer, moved forward only: an early one finds nothing to do and asks again."""
        if due_s >= self._due_s or due_s == float("inf"):
            return
        self._due_s = due_s

        def wake() -> None:
            if self._due_s == due_s:
                self._due_s = float("inf")
                self.turn()

        self._call_later(max(0.0, due_s - self._clock()), wake)


def _tell(pass_id: int, error: BaseException) -> None:
    """Where it came from if nobody foresaw it; a checkpoint that is gone says enough in its report."""
    if isinstance(error, CheckpointGoneError):
        log.warning("pass %d failed: it builds on a checkpoint that is gone", pass_id)
    else:
        log_fault(log, error, "pass %d failed", pass_id, level=logging.WARNING)
