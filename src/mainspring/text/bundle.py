"""A bundle: all of a model but its weights. Tokenizer, chat template, scoring.json, end-of-sequence ids, how the
checkpoint wants its tokens chosen.

Frozen, identified by `hash` (SHA-256 of its canonical content: the same on every machine, whatever the order of keys),
and packed into bytes so that gateways need no model folder. A folder without a chat template gets a plain one, noted in
`notes`.
"""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from mainspring.errors import ModelError, TooLargeError
from mainspring.text.chat import Chat, Segments, text_of
from mainspring.text.cut import render_cut
from mainspring.text.familiarity import Familiarity
from mainspring.text.fast import EncodeMany, Ids
from mainspring.text.folder import Files, read_folder
from mainspring.text.guard import ControlFinder, Piece
from mainspring.text.probability import Floats, probabilities
from mainspring.text.question import KINDS, Behavior, Kind, Question, YesNo, check_question
from mainspring.text.scoring import AnswerIds, Scoring, answer_words, check_options, read_scoring
from mainspring.text.span import Span
from mainspring.text.template import Template
from mainspring.text.tokenizer import Tokenizer
from mainspring.text.view import Rendered, View, finish, render_prompt, settle

PACK_BYTES = 64 << 20
DEFAULT_VIEW_TOKENS = 131_072


@dataclass(frozen=True, eq=False)
class Branch:
    """One question about a view. `tokens` [n] uint32 follow the view's; `label_ids` [labels] uint32 are read at the
    last of them."""

    tokens: Ids
    label_ids: Ids


@dataclass(frozen=True, eq=False, repr=False)
class Bundle:
    """Made by `load` or `unpack`. `eos_ids` end a generated text; `notes` say what the folder lacked."""

    files: Files
    chat: Chat
    scoring: Scoring
    suffix: tuple[Piece, ...]
    answers: Mapping[Kind, AnswerIds]
    questions: Mapping[Kind, Template]
    hash: str
    notes: tuple[str, ...] = field(default=())

    @classmethod
    def load(cls, folder: Path | str) -> "Bundle":
        """TokenizerError, TemplateError, ModelError naming the file at fault."""
        made = cls.of_files(read_folder(Path(folder)))
        _ = made.familiarity  # here, and not first in every gateway to which a node offers it
        return made

    @classmethod
    def of_files(cls, files: Files, *, fast: bool = True) -> "Bundle":
        tokenizer = Tokenizer(files.tokenizer, where=files.tokenizer_name, fast=fast)
        template = Template(files.template, files.template_name)
        chat = Chat(tokenizer, template, ControlFinder(tokenizer.control_tokens), files.variables)
        scoring = read_scoring(files.scoring) if files.scoring else Scoring()
        suffix = tuple(chat.suffix())
        open_end = suffix and suffix[-1].kind != "control" and not suffix[-1].text[-1:].isspace()
        answers = answer_words(scoring, tokenizer, " " if open_end else "")
        questions = {kind: Template(getattr(scoring.questions, kind), f"question {kind}") for kind in KINDS}
        return cls(files, chat, scoring, suffix, answers, questions, _hash(files, scoring), files.notes)

    def __repr__(self) -> str:
        return f"Bundle({self.hash[:12]})"

    @property
    def tokenizer(self) -> Tokenizer:
        return self.chat.tokenizer

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self.files.eos_ids

    @property
    def limit_tokens(self) -> int:
        """Of a view, where the caller sets none."""
        return self.scoring.limits.view_tokens or self.files.context_tokens or DEFAULT_VIEW_TOKENS

    @cached_property
    def familiarity(self) -> Familiarity | None:
        """None where the folder has none. ModelError."""
        return Familiarity.read(self.files.familiarity) if self.files.familiarity else None

    @cached_property
    def _suffix_text(self) -> str:
        return text_of(self.suffix)

    def view(
        self,
        span: Span,
        *,
        limit_tokens: int | None = None,
        on_overflow: Literal["refuse", "cut"] = "refuse",
        choice: int = 0,
    ) -> View:
        """The span's tokens, at most `limit_tokens`. SpanError; TooLargeError; TemplateError."""
        rendered = self.rendered(span, choice=choice)
        return self.view_of(rendered, span, limit_tokens=limit_tokens, on_overflow=on_overflow, choice=choice)

    def rendered(self, span: Span, *, choice: int = 0) -> Rendered:
        """The first half of `view`, all but the tokens: they are made of
        `chat.segments(rendered.pieces)`."""
        return settle(self.chat, span, choice)

    def view_of(
        self,
        rendered: Rendered,
        span: Span,
        *,
        limit_tokens: int | None = None,
        on_overflow: Literal["refuse", "cut"] = "refuse",
        choice: int = 0,
        encode: EncodeMany | None = None,
        segments: Segments | None = None,
    ) -> View:
        """The second half. `encode` gives the ids of texts, and `segments` are those of the first, where the caller has
        them."""
        limit = self.limit_tokens if limit_tokens is None else limit_tokens
        try:
            return finish(self.chat, rendered, span, self._suffix_text, choice, limit, encode=encode, segments=segments)
        except TooLargeError:
            if on_overflow == "refuse":
                raise
        return render_cut(self.chat, span, rendered, self._suffix_text, choice=choice, limit=limit)

    def prompt(self, span: Span, *, thinking: bool = False, limit_tokens: int | None = None) -> View:
        """The span's input with the generation prompt after it: where a model goes on writing."""
        limit = self.limit_tokens if limit_tokens is None else limit_tokens
        return render_prompt(self.chat, span, thinking=thinking, limit=limit)

    def branch(self, question: Question) -> Branch:
        """BehaviorError where the question can't be asked."""
        return self.branches([question])[0]

    def branches(self, questions: Sequence[Question]) -> list[Branch]:
        """The same for many, encoded at once."""
        rendered = [self.branch_pieces(question) for question in questions]
        tokens = self.chat.encode_many(rendered)
        return [Branch(ids, self._label_ids(question)) for ids, question in zip(tokens, questions, strict=True)]

    def branch_pieces(self, question: Question) -> list[Piece]:
        """The rendered text of a branch by origin, as a view has it in `pieces`."""
        return [*self._ask(question), *self.suffix]

    def probabilities(self, logits: npt.ArrayLike, kind: Kind = "behavior") -> Floats:
        """Of label logits [..., labels]; see `text.probability`."""
        return probabilities(logits, getattr(self.scoring.calibration, kind))

    def pack(self) -> bytes:
        """The bundle without its folder, at most 64 MiB."""
        files = msgspec.structs.replace(self.files, tokenizer_name=Path(self.files.tokenizer_name).name)
        data = zlib.compress(msgspec.msgpack.encode(files), 3)
        if len(data) > PACK_BYTES:
            raise TooLargeError("a bundle is too large to be sent", limit=PACK_BYTES, actual=len(data))
        return data

    @classmethod
    def unpack(cls, data: bytes) -> "Bundle":
        """ModelError where `data` is no bundle; TooLargeError beyond 64 MiB, packed or unpacked."""
        if len(data) > PACK_BYTES:
            raise TooLargeError("a bundle is too large", limit=PACK_BYTES, actual=len(data))
        stream = zlib.decompressobj()
        try:
            content = stream.decompress(data, PACK_BYTES)
            if stream.unconsumed_tail:
                raise TooLargeError("a bundle is too large unpacked", limit=PACK_BYTES, actual=PACK_BYTES + 1)
            files = msgspec.msgpack.decode(content, type=Files)
        except (zlib.error, msgspec.DecodeError) as error:
            raise ModelError(f"these bytes are no bundle: {error}") from None
        return cls.of_files(files)

    def _ask(self, question: Question) -> list[Piece]:
        limits = self.scoring.limits
        check_question(question, max_chars=limits.definition_chars)
        guard, size = self.chat.guard(_texts(question))
        answers = self.answers[question.kind]
        context: dict[str, Any] = {"answers": answers.words}
        if isinstance(question, Behavior):
            context["definition"] = guard.leaf(question.definition, "definition")
        else:
            context["question"] = guard.leaf(question.text, "text")
        if isinstance(question, YesNo):
            context["yes"] = question.yes and guard.leaf(question.yes, "yes")
            context["no"] = question.no and guard.leaf(question.no, "no")
        elif not isinstance(question, Behavior):
            check_options(len(question.options), answers)
            context["options"] = [guard.leaf(text, f"options[{i}]") for i, text in enumerate(question.options)]
        template = self.questions[question.kind]
        return guard.pieces(template.render(context, chars=size, items=len(guard.leaves)))

    def _label_ids(self, question: Question) -> Ids:
        return np.array(self.answers[question.kind].ids[: len(question.labels)], dtype=np.uint32)


def _texts(question: Question) -> list[Any]:
    if isinstance(question, Behavior):
        return [question.definition]
    return (
        [question.text, question.yes, question.no] if isinstance(question, YesNo) else [question.text, question.options]
    )


def _hash(files: Files, scoring: Scoring) -> str:
    content: dict[str, Any] = {
        "tokenizer": msgspec.json.decode(files.tokenizer),
        "template": files.template,
        "variables": files.variables,
        "scoring": scoring,
        "eos_ids": files.eos_ids,
        "context_tokens": files.context_tokens,
    }
    if files.familiarity:  # those without keep the hash that they had
        content["familiarity"] = hashlib.sha256(files.familiarity).hexdigest()
    if said := files.sampling.said():  # the same
        content["sampling"] = said
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()
