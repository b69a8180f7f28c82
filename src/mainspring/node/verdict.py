"""What a pass that was run came to, part by part. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from mainspring.engine.stream_records import SlotsFullError
from mainspring.errors import InputError
from mainspring.node.jobs import PassJob
from mainspring.node.outcome import Outcome
from mainspring.node.tasks import PromptGoneError
from mainspring.node.translate import message_of, not_finite, reason_of
from mainspring.wire import messages as m

VIEW_MISSING = "a checkpoint that the pass builds on is not here"
LEASE_GONE = "its lease is not here"
DETAIL_CHARS = 500
WORST: tuple[m.FailReason, ...] = ("engine", "out_of_memory", "not_finite", "bad_work", "view_missing", "late")


@dataclass(frozen=True)
class Verdict:
    """`bad`: places in `job.left` without an answer, of which `poisoned` came out as NaN or infinity. `reason`: the
    worst of all parts', None where all went well; `missing`: keys that the router believes in."""

    bad: Sequence[int]
    poisoned: Sequence[int]
    reason: m.FailReason | None
    message: str
    missing: tuple[str, ...]
    details: tuple[m.Detail, ...] = ()


def judge(job: PassJob, outcome: Outcome) -> Verdict:
    faults: list[tuple[m.FailReason, str]] = []
    poisoned: Sequence[int] = ()
    bad: Sequence[int] = range(len(job.left))
    if outcome.error is not None:
        faults.append((reason_of(outcome.error), message_of(outcome.error)))
    else:
        poisoned = not_finite(outcome.logits)
        bad = sorted({*poisoned, *outcome.unkept})
        if poisoned:
            faults.append(("not_finite", "the model's answer is not finite"))
        elif bad:
            faults.append(("out_of_memory", "no room to keep a view that is half scanned"))
    if len(job.left) < sum(not part.of_lease for part in job.work.parts):
        faults.append(("view_missing", VIEW_MISSING))
    faults += [spoilt(error) for error in job.spoilt.values()]
    missing = tuple(
        job.work.parts[index].prefix for index, error in job.spoilt.items()
        if isinstance(error, PromptGoneError) and job.work.parts[index].prefix
    )  # fmt: skip
    reason, message = min(faults, key=lambda fault: WORST.index(fault[0]), default=(None, ""))
    return Verdict(bad, poisoned, reason, message, missing, details_of(job))


def details_of(job: PassJob) -> tuple[m.Detail, ...]:
    """Of prompts that ask for what can't be done: each for its own caller."""
    return tuple(
        m.Detail(index=index, code=error.code, message=error.message[:DETAIL_CHARS], param=(error.param or "")[:128])
        for index, error in job.spoilt.items() if isinstance(error, InputError)
    )  # fmt: skip


def spoilt(error: BaseException | None) -> tuple[m.FailReason, str]:
    """Why a chunk of a prompt was not scanned."""
    if error is None:
        return "late", LEASE_GONE
    if isinstance(error, PromptGoneError):
        return "view_missing", message_of(error)
    if isinstance(error, SlotsFullError):  # the slot it was promised is being let go of
        return "late", message_of(error)
    return reason_of(error), message_of(error)
