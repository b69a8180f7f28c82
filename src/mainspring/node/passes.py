"""Passes of one link that this node holds: taken or refused at receipt, begun, answered once. No device, no clock.

Each part has its own fate. What can't be done is refused before anything is taken; what a pass claimed of kept views is
settled whatever becomes of it. Answers carry the keys that came and went meanwhile, so the order of both is theirs.
"""

import math
from collections.abc import Callable

from mainspring.backend.protocol import Limits
from mainspring.core.agenda import Agenda
from mainspring.errors import InputError
from mainspring.node.health import Health
from mainspring.node.jobs import PassJob, Say
from mainspring.node.leases import Leases
from mainspring.node.outcome import Outcome
from mainspring.node.translate import among, check_segments, joined, message_of, nbytes, pass_of, segments_of
from mainspring.node.verdict import LEASE_GONE, VIEW_MISSING, judge
from mainspring.node.views import Views
from mainspring.wire import messages as m
from mainspring.wire.records import HeldKeys

WAITING_PASSES = 256
WAITING_BYTES = 256 << 20
FAULT = "internal fault"
SHORT_S = 0.005
"""Predicted to be over so soon, a pass is said to have begun together with its answer: a message of its own would cost
router and node a record and a wake-up each, and come hardly sooner."""
BEGAN_S = 0.02
"""... but never later than this after it began."""
Changes = Callable[[], tuple[HeldKeys, tuple[str, ...]]]


class Passes:
    """`link` is the serial number of the link that is there; what an earlier one asked for is answered to nobody.
    `changes()`: keys gained and dropped that the router has to hear of."""

    def __init__(
        self, name: str, limits: Limits, views: Views, agenda: Agenda, leases: Leases, health: Health, changes: Changes
    ) -> None:
        self.link = 0
        self._name, self._limits, self._views = name, limits, views
        self._agenda, self._leases, self._health, self._changes = agenda, leases, health, changes
        self._jobs: dict[int, PassJob] = {}
        self._tickets = 0
        self._bytes = 0
        self._untold: PassJob | None = None

    def __len__(self) -> int:
        return len(self._jobs)

    # ------------------------------------------------------ from receipt to the begin

    def take(self, stream: int, work: m.Work, age_s: float, now_s: float) -> list[Say]:
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
        lost, missing = self._views.missing(among(work.parts, scored))
        if len(lost) == len(work.parts):
            return [self._refuse(stream, work, "view_missing", VIEW_MISSING, missing)]
        taken = [index for at, index in enumerate(scored) if at not in lost]
        parts = among(work.parts, taken)
        claim = self._views.claim(parts, now_s)
        segments = segments_of(parts, claim.places)
        job = PassJob(self.link, stream, work, claim, segments, now_s, size, taken, missing, prompts=prompts)
        try:
            check_segments(self._limits, segments)
        except InputError as error:
            self._views.settle(claim, now_s, failed=range(len(parts)))
            return [self._refuse(stream, work, "bad_work", message_of(error))]
        self._tickets += 1
        self._jobs[self._tickets] = job
        self._bytes += size
        self._agenda.add(pass_of(self._tickets, self._name, work, within_s), now_s)
        return []

    def forget(self, now_s: float) -> None:
        """The link is gone: what was not begun is given up, unheard."""
        for work in self._agenda.clear():
            self._give_up(self._jobs.pop(work.id), now_s)

    def cancel(self, stream: int, now_s: float) -> list[Say]:
        """Nothing where it runs already: its answer comes."""
        for ticket, job in self._jobs.items():
            if job.stream == stream and self._agenda.drop(ticket):
                del self._jobs[ticket]
                self._give_up(job, now_s)
                return self._failed(job, "cancelled")
        return []

    def late(self, ticket: int, now_s: float) -> list[Say]:
        job = self._jobs.pop(ticket)
        self._give_up(job, now_s)
        return self._failed(job, "late")

    def begin(self, ticket: int, *, leaving: bool, now_s: float) -> tuple[PassJob | None, list[Say]]:
        """The job, or why there is none. `leaving`: it would run beyond the drain's end."""
        job = self._jobs.pop(ticket)
        self._bytes -= job.nbytes
        if leaving:
            self._views.settle(job.claim, now_s, failed=range(len(job.taken)))
            return None, self._failed(job, "draining")
        job.lose(*self._views.gone(job.claim))
        job.find_chunks(self._leases.chunk)
        if not job.left and not job.chunks:
            self._views.settle(job.claim, now_s, failed=range(len(job.taken)))
            if job.taken or not job.spoilt:
                return None, self._failed(job, "view_missing", message=VIEW_MISSING)
            return None, self._failed(job, "late", message=LEASE_GONE)
        job.began_s = now_s
        self._untold = job
        return job, self.began(now_s) if job.work.predicted_s > SHORT_S else []

    def began(self, now_s: float) -> list[Say]:
        """That the pass under way has begun, once; nothing where that was said."""
        job, self._untold = self._untold, None
        if job is None:
            return []
        return self._say(job, m.Started(fence=job.work.fence, ago_s=max(0.0, now_s - job.began_s)))

    def untold_s(self) -> float:
        """When that has to be said at the latest; infinite where there is nothing to say."""
        return math.inf if self._untold is None else self._untold.began_s + BEGAN_S

    # ------------------------------------------------------ what came of it

    def answered(self, job: PassJob, outcome: Outcome, now_s: float) -> list[Say]:
        """Each part has its own fate: views that came out as NaN or found no room, or all of them where the device
        raised; prompts."""
        return [*self.began(now_s), *self._answered(job, outcome, now_s)]

    def _answered(self, job: PassJob, outcome: Outcome, now_s: float) -> list[Say]:
        verdict = judge(job, outcome)
        sound = {place for at, place in enumerate(job.left) if at not in verdict.bad}
        self._views.settle(job.claim, now_s, failed=[place for place in range(len(job.taken)) if place not in sound])
        self._views.distrust(job.claim, [job.left[at] for at in verdict.poisoned])
        if verdict.reason == "out_of_memory" and outcome.error is not None:
            self._views.store.clear()
        self._health.ended(now_s, well=verdict.reason in (None, "late", "view_missing", "bad_work")
                          or (verdict.reason == "out_of_memory" and outcome.error is None))  # fmt: skip
        failed = job.failed(verdict.bad)
        if not failed:
            return self._done(job, outcome)
        missing = self._views.names(outcome.missing)
        return self._failed(
            job, verdict.reason or "view_missing", failed=failed if len(failed) < len(job.work.parts) else (),
            logits=b"" if outcome.error is not None else joined(outcome.logits, verdict.bad),
            measured_s=outcome.seconds, message=verdict.message, missing=(*missing, *verdict.missing),
            details=verdict.details,
        )  # fmt: skip

    def broke(self, job: PassJob, now_s: float) -> list[Say]:
        """A fault of ours while its outcome was taken in."""
        self._views.settle(job.claim, now_s, failed=range(len(job.taken)))
        for chunk in job.chunks:
            self._leases.spoilt(chunk, on_device=True)
        return [*self.began(now_s), *self._failed(job, "engine", message=FAULT)]

    # ------------------------------------------------------ within

    def _give_up(self, job: PassJob, now_s: float) -> None:
        self._bytes -= job.nbytes
        self._views.settle(job.claim, now_s, failed=range(len(job.taken)))

    def _say(self, job: PassJob, message: m.Message) -> list[Say]:
        return [Say(job.link, job.stream, message)]

    def _done(self, job: PassJob, outcome: Outcome) -> list[Say]:
        if job.link != self.link:
            return []
        gained, dropped = self._changes()
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
        self._health.refused(reason)
        if job.link != self.link:  # the changes are for whoever listens now
            return []
        gained, dropped = self._changes()
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
        self._health.refused(reason)
        return Say(self.link, stream, m.Failed(fence=work.fence, reason=reason, message=message, dropped=dropped))
