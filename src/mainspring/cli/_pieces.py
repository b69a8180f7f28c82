"""Rendered text by origin: control tokens, the template's text, users' text.

With colours the text runs on and styles tell them apart. Without, every line says in its margin where it comes from;
no text can forge a margin, since each of its line breaks begins a new one.
"""

from collections.abc import Iterable, Sequence

from rich.cells import chop_cells
from rich.text import Text

from mainspring.cli._terminal import Screen
from mainspring.text.guard import Piece
from mainspring.text.tokenizer import Tokenizer

STYLES = {"control": "bold white on magenta", "template": "cyan", "user": ""}


def show_pieces(screen: Screen, pieces: Sequence[Piece]) -> None:
    if not screen.has_colour:
        _with_margins(screen, pieces)
        return
    text = Text()
    for piece in pieces:
        text.append(screen.safe(piece.text, keep="\n\t"), STYLES[piece.kind])
    screen.console.print(text)
    legend = Text("legend: ", style="dim")
    for kind, style in STYLES.items():
        legend.append(kind, style).append(" ")
    screen.console.print(legend)


def _with_margins(screen: Screen, pieces: Sequence[Piece]) -> None:
    width = max(8, screen.console.width - len("template | "))
    for piece in pieces:
        *ended, last = piece.text.split("\n")
        for line in (*(screen.safe(line) + r"\n" for line in ended), screen.safe(last)):
            # A terminal would break the line by itself, and what follows would stand where margins do.
            for part in chop_cells(line, width) if screen.is_terminal else (line,):
                if part:
                    screen.line(f"{piece.kind:<8} | {part}", safe=True)


def show_tokens(screen: Screen, tokenizer: Tokenizer, tokens: Iterable[int]) -> None:
    """Position, id, text; bytes that are no characters by themselves come as U+FFFD."""
    control = set(tokenizer.control.values())
    texts: dict[int, str] = {}
    for position, token in enumerate(map(int, tokens)):
        if token not in texts:
            texts[token] = repr(tokenizer.decode([token]))
        kind = "control" if token in control else ""
        screen.line(f"{position:>7}  {token:>7}  {texts[token]}  {kind}".rstrip(), STYLES[kind] if kind else "")
