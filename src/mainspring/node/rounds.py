"""What rounds and prompts came to: tokens out, their cost learnt, checkpoints by key. No device, no clock."""

from collections.abc import Sequence

from mainspring.core.agenda import Agenda
from mainspring.engine.stream_records import Emitted
from mainspring.node.health import Health
from mainspring.node.jobs import PassJob, RoundJob, Say
from mainspring.node.leases import Leases
from mainspring.node.outcome import Outcome
from mainspring.node.prefixkeys import PrefixKeys
from mainspring.node.roundfit import RoundFit
from mainspring.node.translate import message_of, reason_of
from mainspring.wire import messages as m


class Rounds:
    """`fit` None: a node that does not generate. `written`: what was generated so far, None there."""

    def __init__(self, agenda: Agenda, leases: Leases, health: Health, fit: RoundFit | None) -> None:
        self.prefixes = PrefixKeys()
        self.fit = fit
        self.written: m.Written | None = None if fit is None else m.Written()
        self._agenda, self._leases, self._health = agenda, leases, health

    def learn(self, outcome: Outcome) -> None:
        """After every job: what the device tells about its streams."""
        self.prefixes.note(outcome.wrote.gained, outcome.wrote.dropped)
        if self.written is not None:
            self.written = outcome.wrote.so_far

    def scanned(self, job: PassJob, outcome: Outcome, now_s: float) -> None:
        """The pass's chunks of prompts; those that came to nothing are noted in the job."""
        self._leases.opened(outcome.wrote.opened)
        for at, (index, chunk) in enumerate(zip([*job.prompts], job.chunks, strict=True)):
            fault = outcome.wrote.faults.get(at)
            if fault is None:
                self._leases.scanned(chunk, now_s)
            else:
                job.spoilt[index] = fault
                self._leases.spoilt(chunk)

    def ended(self, job: RoundJob, outcome: Outcome, now_s: float) -> list[Say]:
        """A round is over; what its streams have to say."""
        wrote, took_s = outcome.wrote, outcome.seconds
        self._agenda.round_done(took_s, now_s)
        if wrote.broke is not None:
            self._health.ended(now_s, well=False, is_pass=False)
            return self._leases.broke(job.names, reason_of(wrote.broke), message_of(wrote.broke))
        well = [each for each in wrote.emitted if each.ended is None or each.ended.finish != "failed"]
        self._health.ended(now_s, well=bool(well) or not wrote.emitted, is_pass=False)
        if self.fit is not None:
            self._learn(self.fit, job, well, took_s)
            self._agenda.tokens_a_round = self.fit.cost.tokens
        lost = self._leases.broke(wrote.unknown, "engine", "the device has no such stream")
        return [*lost, *self._leases.emitted(wrote.emitted)]

    def _learn(self, fit: RoundFit, job: RoundJob, well: Sequence[Emitted], took_s: float) -> None:
        """From a round of which all is known: a first token is free and says nothing, a stream that failed took none
        knows what share."""
        gave = {each.id: len(each.tokens) for each in well}
        if job.forwarded and len(gave) == len(job.names):
            fit.note(len(job.forwarded), job.context, took_s, sum(gave[name] for name in job.forwarded))
