"""What a node decides, without a socket, a thread or a clock: decoded messages and times in, messages and jobs out.

    scheduler.joined(epoch, now_s) ... scheduler.work(stream, work, age_s, now_s) -> what to say
    turn = scheduler.next(now_s)                  # what to say, and a job where the device is free
    scheduler.finished(job, outcome, now_s)       # what to say

The order of work is `core.agenda`'s. One job at a time; what can't begin in its window is refused as late as soon as
that is certain, never run; every pass taken is answered once, or its link was lost. What an earlier link asked for is
never reported on a later one: jobs carry the link they came by.
"""

from mainspring.backend.protocol import Limits
from mainspring.core.agenda import Agenda, ComeLate, RunPass, RunRound
from mainspring.node.health import Health
from mainspring.node.jobs import Job, PassJob, ProbeJob, RoundJob, Say, SweepJob, Turn
from mainspring.node.leases import Leases, Writing
from mainspring.node.outcome import Outcome
from mainspring.node.passes import FAULT, Passes
from mainspring.node.probe import CANARY, Probe
from mainspring.node.roundfit import RoundFit
from mainspring.node.rounds import Rounds
from mainspring.node.translate import not_finite
from mainspring.node.views import TOLD, Views
from mainspring.wire import messages as m
from mainspring.wire.records import HeldKeys

FAREWELL_S = 0.25
"""Before a drain's end streams that still live are told."""


class Scheduler:
    """`limits` are the backend's. `running` is the job that the device is at. `writing` None: it does not generate.
    `full`: the link takes no more; then no round is run."""

    def __init__(
        self, name: str, limits: Limits, views: Views, probe: Probe, health: Health, writing: Writing | None = None,
        round_fit: RoundFit | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.full = False
        self.views = views
        self.probe = probe
        self.health = health
        self.running: Job | None = None
        self.draining_by_s: float | None = None
        self._limits = limits
        self._agenda = Agenda()
        self.leases = Leases(name, self._agenda, writing)
        self.rounds = Rounds(self._agenda, self.leases, health, round_fit if writing is not None else None)
        self.passes = Passes(name, limits, views, self._agenda, self.leases, health, self.changes)
        self._free_s = 0.0

    # ------------------------------------------------------ links

    def joined(self, now_s: float) -> int:
        """A link was welcomed; its serial number here. What an earlier one left waiting is forgotten, and that its
        router wanted us to leave."""
        self.lost(self.passes.link, now_s)
        self.passes.link += 1
        self.draining_by_s = None
        self.health.draining = False
        return self.passes.link

    def lost(self, link: int, now_s: float) -> None:
        """Passes not begun are forgotten, the one that runs ends unheard; what it keeps stays."""
        if link != self.passes.link:
            return
        self.passes.link += 1  # nothing more is said on the old one
        self.passes.forget(now_s)
        self.leases.lost()
        self.views.forget_halves()

    # ------------------------------------------------------ what the router says

    def work(self, stream: int, work: m.Work, age_s: float, now_s: float) -> list[Say]:
        """A pass in its turn; `age_s`: how long ago it left the router, as far as is known."""
        return self.passes.take(stream, work, age_s, now_s)

    def lease(self, stream: int, lease: m.OpenLease) -> list[Say]:
        return self.leases.open(self.passes.link, stream, lease, draining=self.draining_by_s is not None)

    def cancel(self, stream: int, now_s: float) -> list[Say]:
        """Nothing where a pass runs already: its answer comes. A lease ends at once."""
        return self.leases.cancel(stream) or self.passes.cancel(stream, now_s)

    def release(self, request: str) -> None:
        self.views.release(request)

    def drain(self, within_s: float, now_s: float) -> None:
        """Run what is held as far as it goes in `within_s`, refuse the rest."""
        by_s = now_s + within_s
        self.draining_by_s = by_s if self.draining_by_s is None else min(by_s, self.draining_by_s)
        self.health.draining = True

    # ------------------------------------------------------ the device

    def next(self, now_s: float) -> Turn:
        """What is late by now, and the next job if the device is free."""
        turn = Turn([say for work in self._agenda.late(now_s) for say in self.passes.late(work.id, now_s)])
        if now_s >= self.passes.untold_s():
            turn.says += self.passes.began(now_s)
        self.views.expire(now_s)
        if self.draining_by_s is not None and now_s >= self.draining_by_s - FAREWELL_S:
            turn.says += self.leases.end_all("draining", "this node is leaving")
        self._agenda.paused = self.full
        while self.running is None:
            step = self._agenda.next(now_s)
            if isinstance(step, ComeLate):
                turn.says += self.passes.late(step.work.id, now_s)
            elif isinstance(step, RunPass):
                by_s = self.draining_by_s
                leaving = by_s is not None and now_s + step.work.predicted_s > by_s
                job, says = self.passes.begin(step.work.id, leaving=leaving, now_s=now_s)
                turn.job = self.running = job
                turn.says += says
            elif isinstance(step, RunRound):
                turn.job = self.running = self.leases.round(step.request_ids)
            else:
                turn.job = self.running = SweepJob() if self.leases.cancels else self._idle_job(now_s)
                break
        if turn.job is not None:
            turn.cancels = self.leases.take_cancels()
        self.health.waiting, self.health.running = self._agenda.waiting, self.running is not None
        return turn

    def finished(self, job: Job, outcome: Outcome, now_s: float) -> list[Say]:
        """The device is free again; the one answer of a pass, unless its link is gone."""
        self.running = None
        self._free_s = now_s
        self.rounds.learn(outcome)
        if isinstance(job, ProbeJob):
            self._probed(job, outcome, now_s)
            return []
        if isinstance(job, RoundJob):
            return self.rounds.ended(job, outcome, now_s)
        if isinstance(job, SweepJob):
            return []
        self.rounds.scanned(job, outcome, now_s)
        return self.passes.answered(job, outcome, now_s)

    def faulted(self, job: Job, now_s: float) -> list[Say]:
        """`finished` itself went wrong, a fault of ours: what the job was about fails, and nothing else."""
        self.running = None
        self._free_s = now_s
        self.health.ended(now_s, well=False, is_pass=False)
        if isinstance(job, RoundJob):
            return self.leases.broke(job.names, "engine", FAULT, on_device=True)
        return self.passes.broke(job, now_s) if isinstance(job, PassJob) else []

    # ------------------------------------------------------ when to look again

    def deadline_s(self) -> float:
        """`next` then, if nothing happens before."""
        due_s = min(self._agenda.deadline_s(), self.views.expiry_s(), self.passes.untold_s())
        if self.draining_by_s is not None and len(self.leases):
            due_s = min(due_s, self.draining_by_s - FAREWELL_S)
        if self.running is None and self.draining_by_s is None:
            due_s = min(due_s, self._free_s + self.probe.due_s(), self.health.canary_s(self._free_s))
        return due_s + 1e-6  # a sum and a difference of floats may disagree by less

    @property
    def busy(self) -> bool:
        """A pass runs or waits, or a stream lives."""
        return isinstance(self.running, PassJob | RoundJob) or len(self.passes) > 0 or len(self.leases) > 0

    @property
    def changed(self) -> bool:
        """Keys came or went that no answer of a pass will tell: while one runs, its own answer does."""
        return (self.views.store.changed or self.rounds.prefixes.changed) and not isinstance(self.running, PassJob)

    def changes(self) -> tuple[HeldKeys, tuple[str, ...]]:
        """Keys (gained with tokens, dropped) that the router has to hear of, at most `TOLD`."""
        gained, dropped = self.views.changes()
        more, fewer = self.rounds.prefixes.changes(TOLD - len(gained) - len(dropped))
        return (*gained, *more), (*dropped, *fewer)

    def all_keys(self) -> HeldKeys:
        """Everything kept, for a router that knows nothing."""
        return (*self.views.all(), *self.rounds.prefixes.all())

    # ------------------------------------------------------ within

    def _idle_job(self, now_s: float) -> ProbeJob | None:
        if self.draining_by_s is not None:
            return None
        shape = self.probe.next_idle(now_s - self._free_s)
        if shape is not None:
            return ProbeJob(shape, shape.segments(self._limits.vocab_size))
        if now_s >= self.health.canary_s(self._free_s):
            return ProbeJob(CANARY, CANARY.segments(self._limits.vocab_size), canary=True)
        return None

    def _probed(self, job: ProbeJob, outcome: Outcome, now_s: float) -> None:
        well = outcome.error is None and not not_finite(outcome.logits)
        self.health.ended(now_s, well=well, is_pass=False)
        if job.canary:
            return
        if outcome.error is None:
            self.probe.note(job.shape, outcome.seconds)
        else:
            self.probe.failed(job.shape)
