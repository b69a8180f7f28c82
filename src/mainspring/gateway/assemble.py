"""Text to tokens and logits to probabilities, for one bundle. Pure and safe on several threads.

A choice for which the bundle has no trained head (`calibration.choice` of its scoring.json) is asked as behaviors: one
branch an option, whose `p_present` are normalised. A yes-or-no question without one is a behavior too: `p_present`
against `p_absent`.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from mainspring.core.nouns import Limits
from mainspring.errors import BehaviorError, InputError, MainspringError, TooLargeError
from mainspring.gateway.calls import Floats, ScoreCall
from mainspring.text.bundle import Bundle
from mainspring.text.chat import Segments, texts_of
from mainspring.text.formats import is_span, plain_text, read_span
from mainspring.text.question import Behavior, Question, YesNo, check_question
from mainspring.text.segments import SegmentCache
from mainspring.text.span import Note, ReadSpan, Span
from mainspring.text.view import Rendered, View

QUESTION_TOKENS = 1024
"""Room left behind a view for a question of usual length."""
SUBMIT_BYTES = 15 << 20
"""Tokens and label ids of one request; a frame holds 16 MiB."""
WHOLE_CHARS = 1 << 20
SEGMENT_BYTES = 64 << 20
"""Of turns that came before, with their tokens."""
KEPT_SETS = 64
KEPT_BYTES = 32 << 20
KEPT_TIMES = 2
"""As arrays and as they are sent."""
U32 = npt.NDArray[np.uint32]
F32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Branches:
    """All branches of a set of questions, packed as `Submit` has them. `spread`: branches of each question."""

    lengths: U32
    tokens: U32
    label_counts: U32
    label_ids: U32
    spread: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return int(self.lengths.nbytes + self.tokens.nbytes + self.label_counts.nbytes + self.label_ids.nbytes)

    @cached_property
    def sent(self) -> tuple[bytes, bytes, bytes, bytes]:
        """The four arrays as `Submit` has them."""
        arrays = (self.lengths, self.tokens, self.label_counts, self.label_ids)
        lengths, tokens, counts, ids = (np.ascontiguousarray(each, "<u4").tobytes() for each in arrays)
        return lengths, tokens, counts, ids

    @cached_property
    def longest(self) -> int:
        return int(self.lengths.max())

    @cached_property
    def labels(self) -> int:
        """All label ids, and so all logits."""
        return int(self.label_counts.sum())

    @cached_property
    def is_even(self) -> bool:
        """Each has as many labels as the others."""
        return len(set(self.label_counts.tolist())) == 1


@dataclass(frozen=True)
class Assembled:
    """`tokens`: the view's as bytes, as they are sent."""

    view: View
    tokens: bytes
    branches: Branches
    view_key: str
    notes: tuple[Note, ...]
    format: str

    @property
    def input_tokens(self) -> int:
        return len(self.view.tokens) + len(self.branches.tokens)


@dataclass
class Prepared:
    """A span on its way to tokens: ids of texts that are `known`, texts that are `missing`, those of the known that
    are `fresh`."""

    read: ReadSpan
    rendered: Rendered
    segments: Segments
    salt: bytes
    known: dict[str, U32]
    missing: list[str]
    fresh: list[str]


class Assembler:
    """`trained` names the kinds of question that the bundle calibrates."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        scoring: dict[str, Any] = msgspec.json.decode(bundle.files.scoring) if bundle.files.scoring else {}
        self.trained = frozenset(scoring.get("calibration", {}))
        self.familiarity = bundle.familiarity
        self.segments = SegmentCache(SEGMENT_BYTES)
        self._kept: OrderedDict[tuple[str, tuple[Question, ...]], Branches] = OrderedDict()
        self._kept_bytes = 0
        self._lock = Lock()

    @classmethod
    def unpack(cls, data: bytes) -> "Assembler":
        """ModelError."""
        return cls(Bundle.unpack(data))

    def near(self, branches: Branches) -> tuple[float, ...] | None:
        """Familiarity of each branch, as `Scorer` has it, in half a millisecond each; None: the bundle can't tell."""
        if self.familiarity is None:
            return None
        each = np.split(branches.tokens, np.cumsum(branches.lengths)[:-1])
        return tuple(self.familiarity(tokens) for tokens in each)

    def context(self, limits: Limits) -> int:
        """Tokens of view and branch together: the model's, since a node's may be those of all its streams."""
        return min(limits.context_tokens, self.bundle.files.context_tokens or limits.context_tokens)

    def view_limit(self, limits: Limits) -> int:
        """Tokens of a view: what the model and every node of it read with a question of usual length behind."""
        context = self.context(limits)
        room = context - min(QUESTION_TOKENS, context // 4)
        return min(self.bundle.limit_tokens, limits.view_tokens, room)

    def assemble(self, call: ScoreCall, limits: Limits, salt: bytes) -> Assembled:
        """All at once. InputError that names the caller's field."""
        prepared = self.prepare(call, salt)
        self.encode(prepared)
        return self.finish(call, prepared, limits)

    def prepare(self, call: ScoreCall, salt: bytes) -> Prepared:
        """Reads and renders: Python alone, which holds the interpreter wherever it runs. InputError."""
        read = read_call(call)
        return self.look_up(read, self.bundle.rendered(read.span, choice=call.choice), salt)

    def look_up(self, read: ReadSpan, rendered: Rendered, salt: bytes) -> Prepared:
        """What of it was tokenised before."""
        segments = self.bundle.chat.segments(rendered.pieces)
        texts = texts_of(segments)
        # Texts that may be too long for any limit are left to `finish`, which counts before it encodes them whole.
        texts = list(dict.fromkeys(texts)) if sum(map(len, texts)) <= WHOLE_CHARS else []
        known = self.segments.find(salt, texts)
        return Prepared(read, rendered, segments, salt, known, [text for text in texts if text not in known], [])

    def encode(self, prepared: Prepared) -> None:
        """Tokenises what is not known yet, without the interpreter's lock: worth a thread."""
        prepared.known.update(zip(prepared.missing, self.bundle.tokenizer.encode_texts(prepared.missing), strict=True))
        prepared.fresh, prepared.missing = prepared.missing, []

    def finish(self, call: ScoreCall, prepared: Prepared, limits: Limits) -> Assembled:
        """InputError that names the caller's field."""
        read, salt, known = prepared.read, prepared.salt, prepared.known
        # Here and not in `encode`, which may run on a thread: each has a heap of its own, and as threads take turns the
        # cache would move from one to the other, and leave its place in the first to nobody.
        self.segments.keep(salt, prepared.fresh, [known[text] for text in prepared.fresh])
        branches = self.branches(call)
        span_field, _ = call.fields

        def encode(texts: Sequence[str]) -> list[U32]:
            return [known[text] for text in texts]

        try:
            view = self.bundle.view_of(
                prepared.rendered, read.span, limit_tokens=self.view_limit(limits), on_overflow=call.on_overflow,
                choice=call.choice, encode=encode if known else None, segments=prepared.segments,
            )  # fmt: skip
        except TooLargeError as error:
            raise TooLargeError(error.message, limit=error.limit, actual=error.actual, param=span_field) from None
        self._check_room(view, branches, self.context(limits), call)
        tokens = np.ascontiguousarray(view.tokens, "<u4").tobytes()
        key = hashlib.blake2b(tokens, digest_size=16, key=salt).hexdigest()
        return Assembled(view, tokens, branches, key, (*read.notes, *view.notes), read.format)

    def knows(self, call: ScoreCall) -> bool:
        """Whether the branches are there already."""
        return (call.terms.tenant, call.questions) in self._kept

    def branches(self, call: ScoreCall) -> Branches:
        """The same sets are asked of one conversation after the other: their tokens are kept, by tenant."""
        key = (call.terms.tenant, call.questions)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        made = self._tokenised(call)
        with self._lock:
            if key not in self._kept and KEPT_TIMES * made.nbytes <= KEPT_BYTES // 4:
                self._kept[key] = made
                self._kept_bytes += KEPT_TIMES * made.nbytes
            while self._kept and (len(self._kept) > KEPT_SETS or self._kept_bytes > KEPT_BYTES):
                self._kept_bytes -= KEPT_TIMES * self._kept.popitem(last=False)[1].nbytes
        return made

    def _tokenised(self, call: ScoreCall) -> Branches:
        asked: list[Question] = []
        spread: list[int] = []
        for index, question in enumerate(call.questions):
            try:
                check_question(question, max_chars=self.bundle.scoring.limits.definition_chars)
                parts = self._asked(question)
            except BehaviorError as error:
                inner = "instructions" if error.param == "text" else error.param
                place = call.place(index) + (f".{inner}" if inner else "")
                raise BehaviorError(error.message, param=place) from None
            asked += parts
            spread.append(len(parts))
        try:
            branches = self.bundle.branches(asked)
        except BehaviorError as error:
            raise BehaviorError(error.message, param=call.fields[1]) from None
        return Branches(
            lengths=np.array([len(branch.tokens) for branch in branches], np.uint32),
            tokens=np.concatenate([branch.tokens for branch in branches]).astype(np.uint32),
            label_counts=np.array([len(branch.label_ids) for branch in branches], np.uint32),
            label_ids=np.concatenate([branch.label_ids for branch in branches]).astype(np.uint32),
            spread=tuple(spread),
        )

    def _asked(self, question: Question) -> list[Question]:
        if isinstance(question, Behavior) or question.kind in self.trained:
            return [question]
        if isinstance(question, YesNo):
            lines = [question.text]
            lines += [f"Present when: {question.yes}"] if question.yes else []
            lines += [f"Absent when: {question.no}"] if question.no else []
            return [Behavior(question.id, "\n".join(lines))]
        return [Behavior(question.id, f"{question.text}\nPresent when: {option}") for option in question.options]

    def _check_room(self, view: View, branches: Branches, context: int, call: ScoreCall) -> None:
        longest = len(view.tokens) + branches.longest
        if longest > context:
            at = int(branches.lengths.argmax())
            index = int(np.searchsorted(np.cumsum(branches.spread), at, side="right"))
            raise TooLargeError(
                f"{int(branches.lengths[at]):,} tokens after a span of {len(view.tokens):,} exceed the model's "
                f"context of {context:,}",
                limit=context, actual=longest, param=call.place(index),
            )  # fmt: skip
        size = 4 * len(view.tokens) + branches.nbytes
        if size > SUBMIT_BYTES:
            raise too_many_bytes(size, call.fields[1])

    def rows(self, questions: tuple[Question, ...], branches: Branches, logits: F32) -> list[Floats]:
        """One row of probabilities a question. `logits` [sum of labels]. LogitError."""
        counts = branches.label_counts
        if len(logits) != branches.labels:
            raise InternalAnswerError(f"{len(logits)} logits where {branches.labels} were asked for")
        if len(counts) == len(questions) and branches.is_even and len({q.kind for q in questions}) == 1:
            table = self.bundle.probabilities(logits.reshape(len(questions), -1), self._kind(questions[0]))
            if isinstance(questions[0], Behavior):
                return list(table)
            return [self._joined(question, table[index : index + 1]) for index, question in enumerate(questions)]
        found: list[Floats] = []
        at = label_at = 0
        for question, spread in zip(questions, branches.spread, strict=True):
            width = int(counts[at])
            block = logits[label_at : label_at + spread * width].reshape(spread, width)
            found.append(self._joined(question, self.bundle.probabilities(block, self._kind(question))))
            at, label_at = at + spread, label_at + spread * width
        return found

    def _kind(self, question: Question) -> Any:
        return question.kind if question.kind in self.trained else "behavior"

    def _joined(self, question: Question, table: Floats) -> Floats:
        """`table` [branches, labels] of one question -> [its own labels]."""
        if isinstance(question, Behavior) or question.kind in self.trained:
            row: Floats = table[0]
            return row
        part: Floats = table[0, :2] if isinstance(question, YesNo) else table[:, 0]
        total = float(part.sum())
        return part / total if total > 0.0 else np.full(len(part), 1.0 / len(part))


class InternalAnswerError(MainspringError):
    """The fleet answered something else than was asked: a fault of ours."""

    code = "bad_answer"


def too_many_bytes(size: int, param: str | None = None) -> TooLargeError:
    message = f"{size:,} bytes of tokens, one request holds {SUBMIT_BYTES:,}"
    return TooLargeError(message, limit=SUBMIT_BYTES, actual=size, param=param)


def read_call(call: ScoreCall) -> ReadSpan:
    """A span of any known format; a state that is none of them is one message of text, or of JSON as text."""
    if isinstance(call.span, Span):
        return ReadSpan(call.span, "span")
    try:
        return _read(call)
    except InputError as error:
        if error.param is None:
            error.param = call.fields[0]
        raise


def _read(call: ScoreCall) -> ReadSpan:
    if not call.is_state or (not isinstance(call.span, str) and is_span(call.span)):
        return read_span(call.span)
    text = call.span if isinstance(call.span, str) else msgspec.json.encode(call.span).decode()
    return read_span(text, plain_text.NAME)


def tokens_of(bundle: Bundle, value: Any, field: str) -> U32:
    """Token ids from text or from a list of ids. InputError."""
    if isinstance(value, str):
        return np.asarray(bundle.tokenizer.encode_text(value), np.uint32)
    size = bundle.tokenizer.vocab_size
    if len(value) and not 0 <= min(value) <= max(value) < size:
        wrong = next(index for index, each in enumerate(value) if not 0 <= each < size)
        raise InputError(f"token ids go from 0 to {size - 1}", param=f"{field}[{wrong}]")
    return np.asarray(value, np.uint32)
