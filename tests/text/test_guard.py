"""Output taken apart: any order of marks, whole or torn, against a reader that goes character by character."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mainspring.text.guard import ControlFinder, Guard, Piece, choose_marks
from mainspring.text.plain import Control

FINDER = ControlFinder([Control("<|end|>", 1), Control("<|user|>", 2)])
MARKS, _ = choose_marks(b"")
START, END, BREAK, *DIGITS = MARKS


def guard(leaves: int = 6) -> tuple[Guard, list[str]]:
    made = Guard(FINDER, MARKS)
    return made, [made.leaf(f"t{number}<|end|>", f"at[{number}]") for number in range(leaves)]


def plainly(made: Guard, output: str) -> list[Piece]:
    """What `pieces` promises, one character after the other."""
    pieces: list[Piece] = []
    run, leaf, at = "", None, 0

    def close(ended: bool) -> None:
        if ended and leaf is not None:
            pieces.append(Piece("user", run.replace(BREAK, ""), leaf))
        elif run:
            pieces.extend(made._template(run, leaf))

    while at < len(output):
        char = output[at]
        at += 1
        if char == END:
            close(True)
            run, leaf = "", None
        elif char == START:
            close(False)
            digits = ""
            while at < len(output) and output[at] in DIGITS:
                digits += output[at]
                at += 1
            run, leaf = "", made._value(digits)
        else:
            run += char
    close(False)
    return pieces


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from([START, END, BREAK, *DIGITS, "<|end|>", "<|", "end|>", "x", " ", "é"]), max_size=14))
@example([START, DIGITS[1], "x", START, DIGITS[2], "y", END, "z", END])
@example([END, "x", END, START, END, START, DIGITS[1], END])
def test_marks_in_any_order_are_read_as_by_the_character(parts: list[str]) -> None:
    made, _ = guard()
    output = "".join(parts)
    assert made.pieces(output) == plainly(made, output)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, "<|end|>", "<|user|>\n", " "]), max_size=10))
def test_whole_leaves_come_back_and_their_control_text_is_text(order: list[int | str]) -> None:
    made, marked = guard()
    pieces = made.pieces("".join(marked[part] if isinstance(part, int) else part for part in order))
    assert [piece.leaf for piece in pieces if piece.kind == "user"] == [part for part in order if isinstance(part, int)]
    assert all(piece.text == f"t{piece.leaf}<|end|>" for piece in pieces if piece.kind == "user")
    controls = [part.strip() for part in order if isinstance(part, str) and part.strip()]
    assert [piece.text for piece in pieces if piece.kind == "control"] == controls
