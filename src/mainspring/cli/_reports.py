"""Results as they come: tables for people, one JSON object a line for programs.

JSON is ASCII (all else escaped), so that it survives any encoding and steers no terminal; probabilities are printed as
the full doubles they are. Errors of single spans are lines on stderr, or records among the others with --json.
"""

import json
from typing import Any, Protocol

import click
from rich.table import Table
from rich.text import Text

from mainspring.cli._terminal import Screen, bar, colour, stderr, stdout
from mainspring.errors import MainspringError
from mainspring.scorer import BehaviorScore, Scores
from mainspring.text.formats.documents import Item
from mainspring.text.span import Note

BAR_CELLS = 16


class Report(Protocol):
    def scored(self, item: Item, scores: Scores) -> None: ...

    def failed(self, item: Item, error: MainspringError) -> None: ...


class JsonReport:
    """Record by record on stdout, flushed, so that a pipe sees each result when it is there."""

    def scored(self, item: Item, scores: Scores) -> None:
        results = [
            {"id": r.id, "p_present": r.p_present, "p_absent": r.p_absent, "p_not_observable": r.p_not_observable}
            | ({} if r.familiarity is None else {"familiarity": r.familiarity})
            for r in scores
        ]
        usage = {"input_tokens": scores.input_tokens}
        rest = {"results": results, "usage": usage, "notes": notes_json(scores.notes)}
        write_json({**heading_json(item), "format": _format(item), **rest})

    def failed(self, item: Item, error: MainspringError) -> None:
        write_json({**heading_json(item), "error": error_json(error)})


class TableReport:
    def __init__(self, out: Screen | None = None, errors: Screen | None = None) -> None:
        self.out = out or stdout()
        self.errors = errors or stderr()

    def scored(self, item: Item, scores: Scores) -> None:
        count = len(scores.notes)
        notes = f"{count} note{'' if count == 1 else 's'}"
        self.out.line(f"{label(item)}  {_format(item)}  {scores.input_tokens:,} tokens  {notes}", "bold")
        if self.out.is_terminal:
            self.out.console.print(self._table(scores))
        else:
            self._columns(scores)

    def failed(self, item: Item, error: MainspringError) -> None:
        self.errors.line(f"error: {label(item)}: {error}")

    def _columns(self, scores: Scores) -> None:
        told = any(r.familiarity is not None for r in scores)
        lines = ["present  absent     n/o  " + ("familiar  " if told else "") + "behavior"]
        for r in scores:
            near = "" if not told else f"{'-':>8}  " if r.familiarity is None else f"{r.familiarity:8.2f}  "
            lines.append(f"{r.p_present:7.4f} {r.p_absent:7.4f} {r.p_not_observable:7.4f}  {near}{self.out.safe(r.id)}")
        click.echo("\n".join(lines) + "\n", file=self.out.console.file)

    def _table(self, scores: Scores) -> Table:
        table = Table(box=None, padding=(0, 1), header_style="dim")
        table.add_column("behavior", overflow="fold", ratio=1)
        table.add_column("present", no_wrap=True, min_width=BAR_CELLS + 6)
        table.add_column("absent", justify="right", no_wrap=True)
        table.add_column("n/o", justify="right", no_wrap=True)
        told = any(r.familiarity is not None for r in scores)
        if told:
            table.add_column("familiar", justify="right", no_wrap=True, style="dim")
        for r in scores:
            table.add_row(*self._row(r), *([] if r.familiarity is None else [f"{r.familiarity:.2f}"]))
        return table

    def _row(self, r: BehaviorScore) -> tuple[Text, Text, Text, Text]:
        present = f"{bar(r.p_present, BAR_CELLS, self.out.unicode)}  {r.p_present:.2f}"
        others = (r.p_absent, r.p_not_observable)
        absent, unknown = (
            Text(f"{p:.2f}", style="bold" if p > r.p_present and p == max(others) else "") for p in others
        )
        return Text(self.out.short(r.id)), Text(present, style=colour(r.p_present)), absent, unknown


def label(item: Item) -> str:
    """A document's first span goes by its name, unless the document is a stream of lines."""
    numbered = item.index or item.name.lower().endswith((".jsonl", ".ndjson"))
    return f"{item.name}[{item.index}]" if numbered else item.name


def heading_json(item: Item) -> dict[str, Any]:
    return {"name": item.name, "index": item.index}


def notes_json(notes: tuple[Note, ...]) -> list[dict[str, str]]:
    return [{"kind": note.kind, "where": note.where, "detail": note.detail} for note in notes]


def error_json(error: MainspringError) -> dict[str, str | None]:
    return {"code": error.code, "message": error.message, "param": error.param}


def write_json(record: dict[str, Any]) -> None:
    click.echo(json.dumps(record, allow_nan=False))


def _format(item: Item) -> str:
    return item.read.format if item.read else ""
