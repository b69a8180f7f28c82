"""Where output goes: consoles without markup, and what a stream can show.

A terminal gets tables, bars and colours; a pipe or file gets plain aligned columns, nothing wrapped or cut, so that
`grep` and `awk` work. NO_COLOR, FORCE_COLOR and TERM=dumb are rich's and mean what they mean elsewhere.
"""

import sys
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console
from rich.text import Text

from mainspring.cli._visible import clipped, speaks_unicode, visible

EIGHTHS = " ▏▎▍▌▋▊▉"
PRESENT, UNSURE = 0.7, 0.3  # from here on the colours of a probability
DEFINITION_CHARS = 160  # of an id on a terminal


@dataclass(frozen=True)
class Screen:
    """One output stream."""

    console: Console
    is_terminal: bool
    unicode: bool

    @classmethod
    def on(cls, stream: TextIO) -> "Screen":
        console = Console(file=stream, markup=False, emoji=False, highlight=False)
        return cls(console, console.is_terminal, speaks_unicode(console.encoding))

    @property
    def has_colour(self) -> bool:
        return self.console.color_system is not None and not self.console.no_color

    def safe(self, text: str, *, keep: str = "") -> str:
        return visible(text, keep=keep, encoding=self.console.encoding)

    def short(self, text: str) -> str:
        return clipped(self.safe(text), DEFINITION_CHARS, "…" if self.unicode else "...")

    def line(self, text: str, style: str = "", *, safe: bool = False) -> None:
        """One line, whatever `text` holds (`safe`: it has been made so); a terminal breaks it where it likes."""
        self.console.print(Text(text if safe else self.safe(text), style=style), soft_wrap=True)


def stdout() -> Screen:
    return Screen.on(sys.stdout)


def stderr() -> Screen:
    return Screen.on(sys.stderr)


def bar(value: float, width: int, unicode: bool) -> str:
    """`value` of 1 fills `width` cells, to an eighth of a cell where the output can show it."""
    if not unicode:
        return ("#" * round(value * width)).ljust(width, ".")
    cells, eighths = divmod(round(value * width * 8), 8)
    return ("█" * cells + (EIGHTHS[eighths] if eighths else "")).ljust(width)


def colour(value: float) -> str:
    return "bold green" if value >= PRESENT else "yellow" if value >= UNSURE else "bright_black"
