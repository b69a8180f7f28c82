"""The loop behind `score` and `demo`: span by span through a Scorer into a report; one span's fault ends no other."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from mainspring.cli._inputs import Inputs
from mainspring.cli._progress import SpanProgress
from mainspring.cli._reports import Report
from mainspring.cli._terminal import Screen, stderr
from mainspring.errors import MainspringError, SpanError
from mainspring.scorer import Overflow, Scorer, Scores
from mainspring.text.formats.documents import Item
from mainspring.text.question import Behavior


@dataclass(frozen=True)
class How:
    """What Scorer.score is told beside span and behaviors."""

    on_overflow: Overflow = "refuse"
    limit_tokens: int | None = None
    choice: int = 0


@dataclass
class Tally:
    """`seconds` from the first span to the last, the loading of the model not among them."""

    scored: int = 0
    failed: int = 0
    seconds: float = 0.0

    def line(self, behaviors: int) -> str:
        done = self.scored + self.failed
        failed = f", {self.failed:,} refused or failed" if self.failed else ""
        speed = f"{done / max(self.seconds, 1e-9):.1f} spans/s"
        each = f"{behaviors:,} behavior{'' if behaviors == 1 else 's'}"
        return f"{self.scored:,} of {done:,} spans scored against {each}{failed}; {self.seconds:.2f} s, {speed}"


def _score(scorer: Scorer, item: Item, behaviors: Sequence[Behavior], how: How) -> Scores | MainspringError:
    if item.read is None:
        return item.error or SpanError("holds no span")
    try:
        return scorer.score(
            item.read, behaviors, on_overflow=how.on_overflow, limit_tokens=how.limit_tokens, choice=how.choice
        )
    except MainspringError as error:
        return error


def score_inputs(
    scorer: Scorer,
    inputs: Inputs,
    behaviors: Sequence[Behavior],
    report: Report,
    how: How,
    screen: Screen | None = None,
) -> Tally:
    """Everything in `inputs`, reported as it comes, with progress on `screen` (None: stderr)."""
    tally = Tally()
    started = time.perf_counter()
    with SpanProgress(screen or stderr(), inputs.total_bytes) as progress:
        for item in inputs:
            outcome = _score(scorer, item, behaviors, how)
            with progress.paused():
                if isinstance(outcome, MainspringError):
                    tally.failed += 1
                    report.failed(item, outcome)
                else:
                    tally.scored += 1
                    report.scored(item, outcome)
            progress.advance(inputs.read_bytes)
    tally.seconds = time.perf_counter() - started
    return tally


def open_scorer(model: str, *, device: str = "cpu", revision: str | None = None, threads: int | None = None) -> Scorer:
    """ModelError where it can't be loaded."""
    return Scorer.from_pretrained(model, device=device, revision=revision, threads=threads)
