"""A span as a bundle renders it, with its questions: for people (`Page`) and for programs (`reading_json`)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mainspring.cli._pieces import show_pieces, show_tokens
from mainspring.cli._reports import heading_json, label, notes_json
from mainspring.cli._terminal import Screen, stdout
from mainspring.errors import SpanError
from mainspring.hub import model_folder
from mainspring.scorer import Overflow, view_limit
from mainspring.text.bundle import Branch, Bundle
from mainspring.text.formats.documents import Item
from mainspring.text.guard import Piece
from mainspring.text.question import Behavior
from mainspring.text.span import Note, ReadSpan, Span
from mainspring.text.view import View


@dataclass(frozen=True)
class Reading:
    item: Item
    read: ReadSpan
    view: View

    @property
    def notes(self) -> tuple[Note, ...]:
        return (*self.read.notes, *self.view.notes)


@dataclass(frozen=True)
class Asked:
    """A behavior's branch and its rendered text."""

    behavior: Behavior
    branch: Branch
    pieces: Sequence[Piece]


@dataclass(frozen=True)
class Reader:
    bundle: Bundle
    asked: tuple[Asked, ...]
    limit: int
    on_overflow: Overflow
    choice: int

    @classmethod
    def open(
        cls,
        model: str,
        revision: str | None,
        behaviors: Sequence[Behavior],
        *,
        on_overflow: Overflow,
        limit_tokens: int | None,
        choice: int,
    ) -> "Reader":
        """The limit is the one that a Scorer has. ModelError; BehaviorError."""
        bundle = Bundle.load(model_folder(model, revision=revision, weights=False))
        limit = view_limit(bundle, bundle.files.context_tokens or DEFAULT_CONTEXT_TOKENS, limit_tokens)
        branches = bundle.branches(behaviors) if behaviors else []
        pieces = map(bundle.branch_pieces, behaviors)
        return cls(bundle, tuple(map(Asked, behaviors, branches, pieces)), limit, on_overflow, choice)

    def read(self, item: Item) -> Reading:
        """MainspringError where the span can't be read or rendered."""
        if item.read is None:
            raise item.error or SpanError("holds no span")
        view = self.bundle.view(
            item.read.span, limit_tokens=self.limit, on_overflow=self.on_overflow, choice=self.choice
        )
        return Reading(item, item.read, view)

    def answers(self, asked: Asked) -> list[tuple[str, str, int]]:
        """(label, word, id) in order."""
        words = self.bundle.answers[asked.behavior.kind].words
        return list(zip(asked.behavior.labels, words, asked.branch.label_ids.tolist(), strict=False))


DEFAULT_CONTEXT_TOKENS = 32_768  # of a config that names none, as the model reads it


class Page:
    def __init__(self, reader: Reader, *, with_tokens: bool, screen: Screen | None = None) -> None:
        self.reader = reader
        self.with_tokens = with_tokens
        self.out = screen or stdout()

    def show(self, reading: Reading) -> None:
        self._title(label(reading.item))
        self._facts(_facts(reading.read) | {"view": self._size(reading.view)})
        for note in self.reader.bundle.notes:
            self._line(f"bundle     {note}")
        self._notes(reading.notes)
        self._text("view", reading.view.pieces, reading.view.tokens)
        for asked in self.reader.asked:
            self._branch(asked)
        self._line("")

    def _size(self, view: View) -> str:
        return f"{len(view.tokens):,} tokens, the limit is {self.reader.limit:,}"

    def _branch(self, asked: Asked) -> None:
        self._line("")
        self._title(f"behavior {asked.behavior.id}")
        answers = ", ".join(f"{label} {word!r} (id {number})" for label, word, number in self.reader.answers(asked))
        self._facts({"question": f"{len(asked.branch.tokens):,} tokens", "answers": answers})
        self._text("question", asked.pieces, asked.branch.tokens)

    def _text(self, name: str, pieces: Sequence[Piece], tokens: Iterable[int]) -> None:
        self._line("")
        show_pieces(self.out, pieces)
        if self.with_tokens:
            self._line("")
            self._line(f"tokens of the {name}")
            show_tokens(self.out, self.reader.bundle.tokenizer, tokens)

    def _notes(self, notes: Sequence[Note]) -> None:
        groups: dict[str, list[Note]] = {}
        for note in notes:
            groups.setdefault(note.kind, []).append(note)
        for kind, members in groups.items():
            self._line(f"{kind.replace('_', ' ')}")
            for note in members:
                self._line(f"  {note.where or 'span'}: {note.detail}")

    def _facts(self, facts: Mapping[str, str]) -> None:
        for name, value in facts.items():
            self._line(f"{name:<9}  {value}")

    def _title(self, text: str) -> None:
        self.out.line(text, "bold")

    def _line(self, text: str) -> None:
        self.out.line(text)


def _facts(read: ReadSpan) -> dict[str, str]:
    span = read.span
    roles = ", ".join(f"{role} {count}" for role, count in _roles(span).items())
    facts = {"format": read.format, "messages": f"{len(span.input)} in, {len(span.output)} out ({roles or 'none'})"}
    if span.tools:
        facts["tools"] = ", ".join(tool.name for tool in span.tools)
    return facts | {
        name: value for name, value in (("model", span.model), ("finish", span.finish_reason)) if value is not None
    }


def _roles(span: Span) -> Counter[str]:
    return Counter(message.role for message in (*span.input, *span.output))


def reading_json(reader: Reader, reading: Reading, *, with_tokens: bool) -> dict[str, Any]:
    span = reading.read.span
    return {
        **heading_json(reading.item),
        "format": reading.read.format,
        "span": {
            "roles": dict(_roles(span)),
            "input": len(span.input),
            "output": len(span.output),
            "tools": [tool.name for tool in span.tools],
            "model": span.model,
            "finish_reason": span.finish_reason,
        },
        "view": {
            "tokens": len(reading.view.tokens),
            "limit": reader.limit,
            "pieces": _pieces_json(reading.view.pieces),
            **({"ids": reading.view.tokens.tolist()} if with_tokens else {}),
        },
        "notes": notes_json(reading.notes),
        "branches": [_asked_json(reader, asked, with_tokens) for asked in reader.asked],
    }


def _asked_json(reader: Reader, asked: Asked, with_tokens: bool) -> dict[str, Any]:
    return {
        "id": asked.behavior.id,
        "tokens": len(asked.branch.tokens),
        "pieces": _pieces_json(asked.pieces),
        "answers": [{"label": label, "word": word, "id": number} for label, word, number in reader.answers(asked)],
        **({"ids": asked.branch.tokens.tolist()} if with_tokens else {}),
    }


def _pieces_json(pieces: Sequence[Piece]) -> list[dict[str, str]]:
    return [{"kind": piece.kind, "text": piece.text} for piece in pieces]
