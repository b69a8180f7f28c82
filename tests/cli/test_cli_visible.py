"""No text of unknown origin steers a terminal."""

import io
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.cli._terminal import Screen, bar
from mainspring.cli._visible import clipped, visible

ANY = st.text(st.characters(codec=None))  # lone surrogates and controls among them


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢字 😀 שלום", "plain é 漢字 😀 שלום"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x9b2J\x00\x07\x7f", r"\x9b2J\x00\x07\x7f"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\u202egnp.exe\u2066", r"\u202egnp.exe\u2066"),
        ("\ud800 \udcff", r"\ud800 \udcff"),
        ("\U000e0041", r"\U000e0041"),
        ("[red]x[/red] :smile:", "[red]x[/red] :smile:"),
    ],
)
def test_escapes(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(ANY, st.sampled_from(["utf-8", "ascii", "latin-1", "cp1252", None]))
def test_what_is_shown_can_be_encoded_and_holds_no_control(text: str, encoding: str | None) -> None:
    shown = visible(text, encoding=encoding)
    shown.encode(encoding or "ascii")
    assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in shown)
    assert visible(shown, encoding=encoding) == shown


def test_kept_controls() -> None:
    assert visible("a\n\tb\x1b", keep="\n\t") == "a\n\tb\\x1b"


@given(ANY)
def test_a_line_on_a_colour_terminal_is_one_line_with_our_own_styles(text: str) -> None:
    stream = io.TextIOWrapper(buffer := io.BytesIO(), encoding="utf-8", newline="")
    screen = Screen.on(stream)
    screen.console._force_terminal = True
    screen.line(text)
    stream.flush()
    printed = buffer.getvalue().decode()
    assert printed.count("\n") == 1
    assert "\x1b" not in re.sub(r"\x1b\[[0-9;]*m", "", printed)


def test_clipped() -> None:
    assert clipped("abcdef", 6, "...") == "abcdef"
    assert clipped("abcdefg", 6, "...") == "abc..."


@pytest.mark.parametrize("unicode", [True, False])
def test_bars_are_as_wide_as_asked_and_never_shrink(unicode: bool) -> None:
    bars = [bar(n / 200, 16, unicode) for n in range(201)]
    assert {len(drawn) for drawn in bars} == {16}
    filled = [sum(c == "█" or c == "#" for c in drawn) for drawn in bars]
    assert filled == sorted(filled)
    assert (filled[0], filled[-1]) == (0, 16)
    assert unicode or "".join(bars).isascii()
