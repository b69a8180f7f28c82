"""Marks that carry the origin of text through a template, so that users' text can never become control.

Every user string (a *leaf*) enters the template as START digits TEXT END, inside its own leading and trailing white
space, with a BREAK on both sides of every character that a control token can begin or end with. The marks are
noncharacters (U+FDD0 to U+FDEF) that occur nowhere in the leaves. Hence:

- no control string in the output stems from user text, whole, split over leaves, or completed by template text;
- nor does a user's `</think>` or `<tool_response>` steer the template's own logic;
- the marks that come out tell which leaves the template shows.

Control tokens are sought outside marked leaves only. Decision: docs/decisions/0002-user-text-never-control.md.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from mainspring.text.plain import Control, without_surrogates

_CANDIDATES = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))
_ESCAPED_MARK = re.compile(r"\\ufd([de][0-9a-f])")
SEEN, SEEN_CHARS = 256, 128
_ROLES = 7  # START, END, BREAK and the four digits of leaf numbers
REPLACEMENT = "\ufffd"

PieceKind = Literal["control", "template", "user"]
LeafKind = Literal[
    "text", "reasoning", "call", "tool", "label"
]  # names of calls and tools must be seen, labels need not


class Marked(str):
    """A string whose `repr` keeps the marks: templates that print a whole dict go through it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _ESCAPED_MARK.sub(lambda match: chr(int("fd" + match[1], 16)), str.__repr__(self))


class Leaf(msgspec.Struct, frozen=True, gc=False):
    """One string of the user's. `cuttable`: prose that may lose its middle; names and ids may not."""

    text: str
    where: str
    kind: LeafKind
    cuttable: bool


class Piece(msgspec.Struct, frozen=True, gc=False):
    """A stretch of output of one origin; `leaf` is the number of the leaf it stems from."""

    kind: PieceKind
    text: str
    leaf: int | None = None


class ControlFinder:
    """What the marks need to know of a tokenizer's control tokens; built once a tokenizer."""

    def __init__(self, control: Iterable[Control]) -> None:
        tokens = {token.text: token for token in control}
        longest_first = sorted(tokens, key=lambda text: (-len(text), text))
        self.tokens = tokens
        self.regex = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self.edges = tuple(sorted({text[0] for text in tokens} | {text[-1] for text in tokens}))
        self.seen: dict[str, tuple[Piece, ...]] = {}
        """Pieces of texts of ASCII alone, which hold no marks."""

    def between(self, text: str) -> tuple[Piece, ...]:
        """`split` of what a template puts between two leaves, which is the same text a hundred times over."""
        found = self.seen.get(text)
        if found is None:
            found = tuple(self.split(text))
            if len(text) <= SEEN_CHARS and text.isascii():
                if len(self.seen) >= SEEN:
                    self.seen.clear()
                self.seen[text] = found
        return found

    def split(self, text: str) -> list[Piece]:
        """Template text as template and control pieces."""
        pieces, at = [], 0
        for match in self.regex.finditer(text):
            if match.start() > at:
                pieces.append(Piece("template", text[at : match.start()]))
            pieces.append(Piece("control", match[0]))
            at = match.end()
        if at < len(text):
            pieces.append(Piece("template", text[at:]))
        return pieces


class Guard:
    """Marks the leaves of one rendering and takes its output apart.

    `unclean`: leaves may hold lone surrogates or marks of their own, which become U+FFFD; `replaced` then has the
    numbers of those that did. `enabled=False` is there for tests to show that they would notice.
    """

    def __init__(self, finder: ControlFinder, marks: str, *, unclean: bool = False, enabled: bool = True) -> None:
        self._finder = finder
        self._unclean = unclean
        self.replaced: set[int] = set()
        self._start, self._end, self._break = tuple(marks[:3])
        self._digits = marks[3:_ROLES]
        self._leading = re.compile(f"[{self._digits}]*")
        self._own = {ord(mark): REPLACEMENT for mark in marks}
        self._any = re.compile(f"[{marks}]")
        self._numbers: dict[str, int] = {}
        self._enabled = enabled
        self._broken = [(char, f"{self._break}{char}{self._break}") for char in finder.edges]
        self.leaves: list[Leaf] = []
        self._shown: list[str] = []
        self._plain: list[str] = []
        """Of each leaf what comes out where the template leaves it as it is, empty where it has no marks; and what of
        it the user wrote."""
        self.chars = 0

    def leaf(self, text: str, where: str, kind: LeafKind = "text", *, cuttable: bool = False) -> str:
        """`text` marked as leaf number `len(leaves)`. White space stays as it is: it can't hold control tokens."""
        return Marked(self.marked(text, where, kind, cuttable=cuttable))

    def marked(self, text: str, where: str, kind: LeafKind = "text", *, cuttable: bool = False) -> str:
        """The same as a plain string, for what goes by itself into a message."""
        number = len(self.leaves)
        if self._unclean and (clean := self._without_own_marks(without_surrogates(text))) != text:
            self.replaced.add(number)
            text = clean
        self.leaves.append(Leaf(text, where, kind, cuttable))
        self.chars += len(text)
        core = text.strip()
        self._plain.append(core)
        if not core or not self._enabled:
            self._shown.append("")
            return text
        lead = trail = ""
        if len(core) < len(text):
            at = text.index(core[0]) if text[0].isspace() else 0
            lead, trail = text[:at], text[at + len(core) :]
        for char, broken in self._broken:
            if char in core:
                core = core.replace(char, broken)
        digits = written(number, self._digits)
        self._numbers[digits] = number
        shown = f"{self._start}{digits}{core}{self._end}"
        self._shown.append(shown)
        return f"{lead}{shown}{trail}" if lead or trail else shown

    def pieces(self, output: str) -> list[Piece]:
        """The output taken apart, marks gone. Text whose marks the template tore apart counts as template text, in
        which the breaks still keep user text from becoming control."""
        pieces: list[Piece] = []
        start, end_mark, seen, shown = self._start, self._end, self._finder.seen, self._shown
        at = output.find(start)
        self._until_ends(output if at < 0 else output[:at], None, pieces)
        leaf = 0
        while at >= 0:
            while leaf < len(shown) and not shown[leaf]:
                leaf += 1
            if leaf < len(shown) and output.startswith(shown[leaf], at):  # the next one, as it stood: nearly all are so
                end = at + len(shown[leaf])
                after = output.find(start, end)
                rest = output[end:after] if after >= 0 else output[end:]
                found = seen.get(rest)
                if found is not None or end_mark not in rest:
                    pieces.append(Piece("user", self._plain[leaf], leaf))
                    if found is not None:
                        pieces += found
                    elif rest:
                        pieces += self._template(rest, None)
                    leaf, at = leaf + 1, after
                    continue
            after = output.find(start, at + 1)
            said = self._marked_piece(output[at + 1 : after] if after >= 0 else output[at + 1 :], pieces)
            leaf, at = leaf if said is None else said + 1, after
        return pieces

    def _marked_piece(self, other: str, pieces: list[Piece]) -> int | None:
        """What stands between one START and the next, whatever the template made of it; the leaf's number."""
        digits = self._leading.match(other)
        assert digits is not None  # noqa: S101 - it matches the empty text too
        leaf, at = self._value(digits[0]), digits.end()
        end = other.find(self._end, at)
        if leaf is None or end < 0 or other.find(self._end, end + 1) >= 0:
            self._until_ends(other[at:], leaf, pieces)
        else:
            pieces.append(Piece("user", self._clean(other[at:end]), leaf))
            if rest := other[end + 1 :]:
                pieces += self._template(rest, None)
        return leaf

    def _until_ends(self, text: str, leaf: int | None, pieces: list[Piece]) -> None:
        """What stands between one START and the next: up to END it is the leaf's, what comes after it the template's.
        A leaf without END, and whatever follows a second one, is torn."""
        inside, *outside = text.split(self._end)
        if outside and leaf is not None:
            pieces.append(Piece("user", self._clean(inside), leaf))
        elif inside:
            pieces += self._template(inside, leaf)
        for each in outside:
            if each:
                pieces += self._template(each, None)

    def shown(self, pieces: Iterable[Piece]) -> set[int]:
        """Numbers of the leaves that came out; a leaf of nothing but white space counts as shown."""
        shown = {piece.leaf for piece in pieces if piece.leaf is not None}
        shown.update(n for n, leaf in enumerate(self.leaves) if n not in shown and not leaf.text.strip())
        return shown

    def _template(self, text: str, leaf: int | None) -> Sequence[Piece]:
        if leaf is None and (text.isascii() or not self._any.search(text)):
            return self._finder.between(text)
        pieces = self._finder.split(text)
        return [Piece(piece.kind, self._any.sub("", piece.text), leaf) for piece in pieces]

    def _clean(self, text: str) -> str:
        return text.replace(self._break, "")

    def _without_own_marks(self, text: str) -> str:
        return text.translate(self._own)

    def _value(self, digits: str) -> int | None:
        return self._numbers.get(digits)


@lru_cache(4096)
def written(number: int, digits: str) -> str:
    """In the base of so many digits."""
    rest, digit = divmod(number, len(digits))
    return (written(rest, digits) if rest else "") + digits[digit]


def choose_marks(data: bytes) -> tuple[str, bool]:
    """(marks, free): seven noncharacters that the UTF-8 in `data` does not hold. Where fewer are free, `free` is false
    and leaves must have theirs replaced."""
    free = _CANDIDATES
    if not data.isascii() and b"\xef\xb7" in data:
        free = tuple(char for char in _CANDIDATES if char.encode() not in data)
    return ("".join(free[:_ROLES]), True) if len(free) >= _ROLES else ("".join(_CANDIDATES[:_ROLES]), False)


def guard_for(data: Any, finder: ControlFinder, *, enabled: bool = True) -> tuple["Guard", int]:
    """A guard whose marks occur nowhere in `data` (records or JSON), and the size of `data` in bytes."""
    try:
        encoded = msgspec.json.encode(data)
    except UnicodeEncodeError:
        size = len(repr(data))
        return Guard(finder, "".join(_CANDIDATES[:_ROLES]), unclean=True, enabled=enabled), size
    marks, free = choose_marks(encoded)
    return Guard(finder, marks, unclean=not free, enabled=enabled), len(encoded)
