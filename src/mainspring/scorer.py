"""Scoring in the caller's process: conversation and behaviors in, probabilities out, one forward pass.

    scorer = Scorer.embedded()  # or Scorer.from_pretrained("path/to/model")
    for result in scorer.score(span, ["the assistant made up a URL"]):
        print(result.id, result.p_present)

A `Scorer` owns one model on one device; calls from several threads take turns at it. A behavior's probabilities do not
depend on what else is asked, in which order, or on what was scored before.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Literal, overload

import numpy as np

from mainspring.backend import open_backend
from mainspring.engine import Branch, Engine, Work
from mainspring.engine.engine import DEFAULT_CACHE_BYTES
from mainspring.errors import InputError, TokenizerError, TooLargeError
from mainspring.hub import EMBEDDED, model_folder
from mainspring.text.bundle import Bundle
from mainspring.text.familiarity import Familiarity
from mainspring.text.formats import read_span
from mainspring.text.question import Behavior, Question, read_behaviors
from mainspring.text.span import Json, Note, ReadSpan, Span
from mainspring.text.view import View

Overflow = Literal["refuse", "cut"]
SpanLike = Span | ReadSpan | Mapping[str, Any] | Sequence[Any] | str
BehaviorLike = Behavior | str | Mapping[str, Any]


@dataclass(frozen=True)
class BehaviorScore:
    """Three probabilities that sum to 1. `p_not_observable`: the span can't tell, which is not "absent".

    `familiarity`, from 0 to 1: how near the definition is to what the model was trained on; None: it doesn't say.
    """

    id: str
    p_present: float
    p_absent: float
    p_not_observable: float
    familiarity: float | None = None


@dataclass(frozen=True)
class Answer:
    """A question's answers and their probabilities, in the question's own order."""

    id: str
    probabilities: dict[str, float]


@dataclass(frozen=True)
class Scores(Sequence[BehaviorScore]):
    """Results in request order; `notes` say what the model did not see as the source had it."""

    results: tuple[BehaviorScore, ...]
    input_tokens: int  # the view once plus all branches
    notes: tuple[Note, ...] = ()

    @overload
    def __getitem__(self, index: int) -> BehaviorScore: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[BehaviorScore]: ...
    def __getitem__(self, index: int | slice) -> BehaviorScore | Sequence[BehaviorScore]:
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[BehaviorScore]:
        return iter(self.results)


class Scorer:
    """`bundle` turns text into tokens and logits into probabilities; `engine` runs the model."""

    def __init__(self, bundle: Bundle, engine: Engine, familiarity: Familiarity | None = None) -> None:
        known, used = engine.backend.limits.vocab_size, bundle.tokenizer.vocab_size
        if used > known:
            raise TokenizerError(
                f"the tokenizer has ids up to {used - 1}, the weights know {known}: they do not belong together"
            )
        self.bundle = bundle
        self.engine = engine
        self._familiarity = familiarity
        self._turn = Lock()
        self._asked: tuple[tuple[Question, ...], tuple[Branch, ...]] = ((), ())

    @classmethod
    def from_pretrained(
        cls,
        path_or_id: str | Path,
        *,
        device: str = "cpu",
        revision: str | None = None,
        token: str | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        threads: int | None = None,
    ) -> "Scorer":
        """Any checkpoint folder of the hybrid family, a hub id, or "embedded".

        `cache_bytes` bounds kept views, 0 keeps none.
        `threads` sets how many CPU threads this process's products use; None measures which number pays.

        Raises ModelError (HubError, CheckpointError, TokenizerError, TemplateError) saying what is wrong with it.
        """
        folder = model_folder(path_or_id, revision=revision, token=token)
        bundle, engine = (
            Bundle.load(folder),
            Engine(open_backend(folder, device, threads=threads), cache_bytes=cache_bytes),
        )
        return cls(bundle, engine, bundle.familiarity)

    @classmethod
    def embedded(cls, *, cache_bytes: int = DEFAULT_CACHE_BYTES, threads: int | None = None) -> "Scorer":
        """The small scorer that comes with the package: docs/scorer.md says what it is worth."""
        return cls.from_pretrained(EMBEDDED, cache_bytes=cache_bytes, threads=threads)

    def score(
        self,
        span: SpanLike,
        behaviors: Sequence[BehaviorLike],
        *,
        on_overflow: Overflow = "refuse",
        limit_tokens: int | None = None,
        choice: int = 0,
    ) -> Scores:
        """One span against behaviors (records, `{id, definition}` or plain definitions, which are their own ids).

        `span` is a Span, decoded JSON of any known format, or plain text. A view over `limit_tokens` (None: the
        model's own limit) is refused, or loses the middles of its longest texts with on_overflow="cut"; `choice`
        picks among several outputs. Raises InputError naming the field at fault.
        """
        asked = read_behaviors(behaviors, max_chars=self.bundle.scoring.limits.definition_chars)
        read = self.read(span)
        view = self.view(read.span, on_overflow=on_overflow, limit_tokens=limit_tokens, choice=choice)
        rows, tokens = self._run(view, asked, "behaviors")
        table = self.bundle.probabilities(np.stack(rows), "behavior").tolist()
        known = self._familiarity
        near = [None if known is None else known(branch.tokens) for branch in self._branches(asked)]
        results = tuple(
            BehaviorScore(b.id, present, absent, untold, familiarity)
            for b, (present, absent, untold), familiarity in zip(asked, table, near, strict=True)
        )
        return Scores(results, tokens, (*read.notes, *view.notes))

    def ask(
        self,
        span: SpanLike,
        questions: Sequence[Question],
        *,
        on_overflow: Overflow = "refuse",
        limit_tokens: int | None = None,
        choice: int = 0,
    ) -> list[Answer]:
        """The same for questions of any kind: behaviors, yes or no, a choice among options."""
        if not questions:
            raise InputError("at least one question is needed", param="questions")
        view = self.view(self.read(span).span, on_overflow=on_overflow, limit_tokens=limit_tokens, choice=choice)
        rows, _ = self._run(view, questions, "questions")
        return [
            Answer(q.id, dict(zip(q.labels, self.bundle.probabilities(row, q.kind).tolist(), strict=True)))
            for q, row in zip(questions, rows, strict=True)
        ]

    def read(self, span: SpanLike | Json) -> ReadSpan:
        """A span from whatever the caller has."""
        if isinstance(span, ReadSpan):
            return span
        if isinstance(span, Span):
            return ReadSpan(span, "span")
        return read_span(span)

    def view(
        self, span: Span, *, on_overflow: Overflow = "refuse", limit_tokens: int | None = None, choice: int = 0
    ) -> View:
        return self.bundle.view(span, limit_tokens=self._limit(limit_tokens), on_overflow=on_overflow, choice=choice)

    def _limit(self, asked: int | None) -> int:
        return view_limit(self.bundle, self.engine.backend.limits.context_tokens, asked)

    def _run(self, view: View, questions: Sequence[Question], param: str) -> tuple[list[np.ndarray], int]:
        tokens = np.asarray(view.tokens, np.int64)
        work = Work(tokens, self._branches(tuple(questions)), hashlib.sha256(tokens.tobytes()).digest())
        self._check_room(work, param)
        with self._turn:
            logits = self.engine.score([work])[0]
        return logits, len(tokens) + work.branch_rows

    def _check_room(self, work: Work, param: str) -> None:
        """The engine knows requests, the caller questions: name the first that does not fit behind the view."""
        limit = self.engine.backend.limits.context_tokens
        for index, branch in enumerate(work.branches):
            if (size := len(work.view) + len(branch.tokens)) > limit:
                raise TooLargeError(
                    f"{len(branch.tokens):,} tokens after a span of {len(work.view):,} exceed the model's context of "
                    f"{limit:,}",
                    limit=limit,
                    actual=size,
                    param=f"{param}[{index}]",
                )

    def _branches(self, questions: tuple[Question, ...]) -> tuple[Branch, ...]:
        """The last questions' branches are kept: a stream of spans is asked the same ones over and over."""
        asked, branches = self._asked
        if questions != asked:
            rendered = self.bundle.branches(questions)
            branches = tuple(
                Branch(np.asarray(b.tokens, np.int64), np.asarray(b.label_ids, np.int64)) for b in rendered
            )
            self._asked = questions, branches
        return branches


QUESTION_TOKENS = 1024


def view_limit(bundle: Bundle, context_tokens: int, asked: int | None = None) -> int:
    """Tokens of a view: never beyond what the model reads with a question of usual length after it."""
    most = min(bundle.limit_tokens, context_tokens - min(QUESTION_TOKENS, context_tokens // 4))
    return most if asked is None else min(asked, most)
