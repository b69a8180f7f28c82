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
from mainspring.errors import InputError
from mainspring.node.health import Health
from mainspring.node.jobs import Job, PassJob, ProbeJob, RoundJob, Say, SweepJob, Turn
from mainspring.node.leases import Leases, Writing
from mainspring.node.outcome import Outcome
from mainspring.node.probe import CANARY, Probe
from mainspring.node.roundfit import RoundFit
from mainspring.node.rounds import Rounds
from mainspring.node.translate import (
    among,
    check_segments,
    joined,
    message_of,
    nbytes,
    not_finite,
    pass_of,
    segments_of,
)
from mainspring.node.verdict import LEASE_GONE, VIEW_MISSING, judge
from mainspring.node.views import TOLD, Views
from mainspring.wire import messages as m
from mainspring.wire.records import HeldKeys

WAITING_PASSES = 256
WAITING_BYTES = 256 << 20
FAULT = "internal fault"
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
        self._jobs: dict[int, PassJob] = {}
        self._tickets = 0
        self._bytes = 0
        self._link = 0
        self._free_s = 0.0

    # ------------------------------------------------------ links

    def joined(self, now_s: float) -> int:
        """A link was welcomed; its serial number here. What an earlier one left waiting is forgotten, and that its
        router wanted us to leave."""
        self.lost(self._link, now_s)
        self._link += 1
        self.draining_by_s = None
        self.health.draining = False
        return self._link

    def lost(self, link: int, now_s: float) -> None:
        """Passes not begun are forgotten, the one that runs ends unheard; what it keeps stays."""
        if link != self._link:
            return
        self._link += 1  # nothing more is said on the old one
        for work in self._agenda.clear():
            self._give_up(self._jobs.pop(work.id), now_s)
        self.leases.lost()
        self.views.forget_halves()

    # ------------------------------------------------------ what the router says

    def work(self, stream: int, work: m.Work, age_s: float, now_s: float) -> list[Say]:
        """A pass in its turn; `age_s`: how long ago it left the router, as far as is known."""
        within_s = work.start_within_s - age_s
        if within_s < 0.0:
            return [self._refuse(stream, work, "late", "came too late")]
        size = nbytes(work)
        if len(self._jobs) >= WAITING_PASSES or self._bytes + size > WAITING_BYTES:
            full = f"at most {WAITING_PASSES} passes and {WAITING_BYTES >> 20} MiB wait here"
            return [self._refuse(stream, work, "out_of_memory", full)]
        prompts = [index for index, part in enumerate(work.parts) if part.of_lease]
        scored = [index for index, part in enumerate(work.parts) if not part.of_lease]
        lost, missing = self.views.missing(among(work.parts, scored))
        if len(lost) == len(work.parts):
            return [self._refuse(stream, work, "view_missing", VIEW_MISSING, missing)]
        taken = [index for at, index in enumerate(scored) if at not in lost]
        parts = among(work.parts, taken)
        claim = self.views.claim(parts, now_s)
        segments = segments_of(parts, claim.places)
        job = PassJob(self._link, stream, work, claim, segments, now_s, size, taken, missing, prompts=prompts)
        try:
            check_segments(self._limits, segments)
        except InputError as error:
            self.views.settle(claim, now_s, failed=range(len(parts)))
            return [self._refuse(stream, work, "bad_work", message_of(error))]
        self._tickets += 1
        self._jobs[self._tickets] = job
        self._bytes += size
        self._agenda.add(pass_of(self._tickets, self.name, work, within_s), now_s)
        return []

    def lease(self, stream: int, lease: m.OpenLease) -> list[Say]:
        return self.leases.open(self._link, stream, lease, draining=self.draining_by_s is not None)

    def cancel(self, stream: int, now_s: float) -> list[Say]:
        """Nothing where a pass runs already: its answer comes. A lease ends at once."""
        ended = self.leases.cancel(stream)
        if ended:
            return ended
        for ticket, job in self._jobs.items():
            if job.stream == stream and self._agenda.drop(ticket):
                del self._jobs[ticket]
                self._give_up(job, now_s)
                return self._failed(job, "cancelled")
        return []

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
        turn = Turn([say for work in self._agenda.late(now_s) for say in self._late(work.id, now_s)])
        self.views.expire(now_s)
        if self.draining_by_s is not None and now_s >= self.draining_by_s - FAREWELL_S:
            turn.says += self.leases.end_all("draining", "this node is leaving")
        self._agenda.paused = self.full
        while self.running is None:
            step = self._agenda.next(now_s)
            if isinstance(step, ComeLate):
                turn.says += self._late(step.work.id, now_s)
            elif isinstance(step, RunPass):
                self._begin(step.work.id, step.work.predicted_s, turn, now_s)
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
        return self._answered(job, outcome, now_s)

    def faulted(self, job: Job, now_s: float) -> list[Say]:
        """`finished` itself went wrong, a fault of ours: what the job was about fails, and nothing else."""
        self.running = None
        self._free_s = now_s
        self.health.ended(now_s, well=False, is_pass=False)
        if isinstance(job, RoundJob):
            return self.leases.broke(job.names, "engine", FAULT, on_device=True)
        if not isinstance(job, PassJob):
            return []
        self.views.settle(job.claim, now_s, failed=range(len(job.taken)))
        for chunk in job.chunks:
            self.leases.spoilt(chunk, on_device=True)
        return self._failed(job, "engine", message=FAULT)

    # ------------------------------------------------------ when to look again

    def deadline_s(self) -> float:
        """`next` then, if nothing happens before."""
        due_s = min(self._agenda.deadline_s(), self.views.expiry_s())
        if self.draining_by_s is not None and len(self.leases):
            due_s = min(due_s, self.draining_by_s - FAREWELL_S)
        if self.running is None and self.draining_by_s is None:
            due_s = min(due_s, self._free_s + self.probe.due_s(), self.health.canary_s(self._free_s))
        return due_s + 1e-6  # a sum and a difference of floats may disagree by less

    @property
    def busy(self) -> bool:
        """A pass runs or waits, or a stream lives."""
        return isinstance(self.running, PassJob | RoundJob) or bool(self._jobs) or len(self.leases) > 0

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

    def _begin(self, ticket: int, predicted_s: float, turn: Turn, now_s: float) -> None:
        job = self._jobs.pop(ticket)
        self._bytes -= job.nbytes
        if self.draining_by_s is not None and now_s + predicted_s > self.draining_by_s:
            self.views.settle(job.claim, now_s, failed=range(len(job.taken)))
            turn.says += self._failed(job, "draining")
            return
        job.lose(*self.views.gone(job.claim))
        job.find_chunks(self.leases.chunk)
        if not job.left and not job.chunks:
            self.views.settle(job.claim, now_s, failed=range(len(job.taken)))
            gone = bool(job.taken) or not job.spoilt
            turn.says += self._failed(
                job, "view_missing" if gone else "late", message=VIEW_MISSING if gone else LEASE_GONE
            )
            return
        job.began_s = now_s
        turn.job = self.running = job
        turn.says += self._say(job, m.Started(fence=job.work.fence))

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

    def _answered(self, job: PassJob, outcome: Outcome, now_s: float) -> list[Say]:
        """Each part has its own fate: views that came out as NaN or found no room, or all of them where the device
        raised; prompts."""
        verdict = judge(job, outcome)
        sound = {place for at, place in enumerate(job.left) if at not in verdict.bad}
        self.views.settle(job.claim, now_s, failed=[place for place in range(len(job.taken)) if place not in sound])
        self.views.distrust(job.claim, [job.left[at] for at in verdict.poisoned])
        if verdict.reason == "out_of_memory" and outcome.error is not None:
            self.views.store.clear()
        self.health.ended(now_s, well=verdict.reason in (None, "late", "view_missing", "bad_work")
                          or (verdict.reason == "out_of_memory" and outcome.error is None))  # fmt: skip
        failed = job.failed(verdict.bad)
        if not failed:
            return self._done(job, outcome)
        missing = self.views.names(outcome.missing)
        return self._failed(
            job, verdict.reason or "view_missing", failed=failed if len(failed) < len(job.work.parts) else (),
            logits=b"" if outcome.error is not None else joined(outcome.logits, verdict.bad),
            measured_s=outcome.seconds, message=verdict.message, missing=(*missing, *verdict.missing),
            details=verdict.details,
        )  # fmt: skip

    def _late(self, ticket: int, now_s: float) -> list[Say]:
        job = self._jobs.pop(ticket)
        self._give_up(job, now_s)
        return self._failed(job, "late")

    def _give_up(self, job: PassJob, now_s: float) -> None:
        self._bytes -= job.nbytes
        self.views.settle(job.claim, now_s, failed=range(len(job.taken)))

    def _say(self, job: PassJob, message: m.Message) -> list[Say]:
        return [Say(job.link, job.stream, message)]

    def _done(self, job: PassJob, outcome: Outcome) -> list[Say]:
        if job.link != self._link:
            return []
        gained, dropped = self.changes()
        return self._say(job, m.Done(
            fence=job.work.fence, measured_s=outcome.seconds, logits=joined(outcome.logits),
            waited_s=max(0.0, job.began_s - job.arrived_s), gained=gained, dropped=dropped,
        ))  # fmt: skip

    def _failed(
        self,
        job: PassJob,
        reason: m.FailReason,
        *,
        failed: tuple[int, ...] = (),
        logits: bytes = b"",
        measured_s: float = 0.0,
        message: str = "",
        missing: tuple[str, ...] = (),
        details: tuple[m.Detail, ...] = (),
    ) -> list[Say]:
        self.health.refused(reason)
        if job.link != self._link:  # the changes are for whoever listens now
            return []
        gained, dropped = self.changes()
        return self._say(job, m.Failed(
            fence=job.work.fence, reason=reason, failed=failed, logits=logits, measured_s=measured_s, gained=gained,
            dropped=tuple(dict.fromkeys((*dropped, *job.missing, *missing))), message=message, details=details,
        ))  # fmt: skip

    def _refuse(
        self,
        stream: int,
        work: m.Work,
        reason: m.FailReason,
        message: str,
        dropped: tuple[str, ...] = (),
    ) -> Say:
        """At receipt: nothing was taken, all parts go back together."""
        self.health.refused(reason)
        return Say(self._link, stream, m.Failed(fence=work.fence, reason=reason, message=message, dropped=dropped))
