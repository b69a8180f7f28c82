"""Cut views: never over the limit, structure kept, the longest texts first, always the same, in bounded time."""

import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.errors import TooLargeError
from mainspring.text.bundle import Bundle
from mainspring.text.cut import water_level
from mainspring.text.span import Message, Reasoning, Span, Text, ToolCall, ToolResult
from mainspring.text.view import View
from support.tiny_tokenizer import CHATML, write_tiny_tokenizer


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return Bundle.load(write_tiny_tokenizer(tmp_path_factory.mktemp("tiny"), chat_template=CHATML))


def conversation(sizes: list[int]) -> Span:
    """A system message, turns of so many words each, an output."""
    turns = [
        Message(
            "user" if number % 2 == 0 else "assistant", (Text(f"turn {number}: " + "word " * size + f"end {number}"),)
        )
        for number, size in enumerate(sizes)
    ]
    return Span((Message("system", (Text("Be good."),)), *turns), (Message("assistant", (Text("The output."),)),))


def control(bundle: Bundle, view: View) -> list[int]:
    ids = set(bundle.tokenizer.control.values())
    return [token for token in view.tokens.tolist() if token in ids]


def cuts(view: View) -> list[str]:
    return [note.where for note in view.notes if note.kind == "cut"]


@given(st.lists(st.integers(0, 1000), max_size=20), st.integers(-10, 5000))
def test_water_level_is_the_highest_that_fits(lengths: list[int], budget: int) -> None:
    def poured(level: int) -> int:
        return sum(min(length, level) for length in lengths)

    level = water_level(lengths, budget)
    assert 0 <= level <= max(lengths, default=0)
    assert poured(level) <= max(budget, 0)
    assert level == max(lengths, default=0) or poured(level + 1) > budget


def test_what_fits_is_not_cut(bundle: Bundle) -> None:
    span = conversation([10, 20, 30])
    whole = bundle.view(span)
    view = bundle.view(span, limit_tokens=len(whole.tokens), on_overflow="cut")
    assert view.tokens.tolist() == whole.tokens.tolist()
    assert not cuts(view)


def test_the_longest_text_loses_its_middle_first(bundle: Bundle) -> None:
    span = conversation([10, 500, 40])
    whole = bundle.view(span)
    limit = len(whole.tokens) - 300
    view = bundle.view(span, limit_tokens=limit, on_overflow="cut")
    assert limit - 10 <= len(view.tokens) <= limit
    assert cuts(view) == ["input[2].parts[0]"]
    assert control(bundle, view) == control(bundle, whole)
    text = next(piece.text for piece in view.pieces if piece.text.startswith("turn 1:"))
    assert text.endswith("end 1")
    (note,) = [note for note in view.notes if note.kind == "cut"]
    left_out = int(note.detail.split()[0])
    assert f"\n[… {left_out} tokens left out …]\n" in text
    assert 300 <= left_out <= 360


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=30), st.integers(1, 2500))
def test_never_over_the_limit_and_always_the_same(bundle: Bundle, sizes: list[int], limit: int) -> None:
    span = conversation(sizes)
    if limit < 200:
        with contextlib.suppress(TooLargeError):
            assert len(bundle.view(span, limit_tokens=limit, on_overflow="cut").tokens) <= limit
        return
    view = bundle.view(span, limit_tokens=limit, on_overflow="cut")
    assert len(view.tokens) <= limit
    assert view.tokens.tolist() == bundle.view(span, limit_tokens=limit, on_overflow="cut").tokens.tolist()
    assert "Be good." in view.text
    assert "The output." in view.text
    if not any(where.startswith("input[") and ":" in where for where in cuts(view)):
        assert control(bundle, view) == control(bundle, bundle.view(span, limit_tokens=1 << 30))


def test_messages_in_the_middle_go_when_texts_can_give_no_more(bundle: Bundle) -> None:
    span = conversation([60] * 41)
    view = bundle.view(span, limit_tokens=900, on_overflow="cut")
    assert 600 < len(view.tokens) <= 900
    (dropped,) = [note for note in view.notes if ":" in note.where]
    first, last = map(int, dropped.where[6:-1].split(":"))
    assert dropped.detail.startswith(f"{last - first} messages of about ")
    assert f"[… {last - first} messages left out …]" in view.text
    for kept in ("Be good.", "turn 0:", "turn 40:", "end 40", "The output."):
        assert kept in view.text
    assert abs(first - (42 - last)) < 5  # from the middle outwards


def test_calls_results_and_reasoning_can_be_cut(bundle: Bundle) -> None:
    long = "word " * 400
    span = Span(
        (
            Message("user", (Text("Hi"),)),
            Message("assistant", (Reasoning(long), ToolCall("f", {"a": long}))),
            Message("tool", (ToolResult({"found": [long]}),)),
        )
    )
    view = bundle.view(span, limit_tokens=700, on_overflow="cut")
    assert len(view.tokens) <= 700
    assert set(cuts(view)) == {"input[1].parts[0]", "input[1].parts[1]", "input[2].parts[0]"}
    assert "<think>\nword" in view.text
    assert "</think>" in view.text


def test_what_cannot_be_cut_enough_is_refused_with_both_figures(bundle: Bundle) -> None:
    with pytest.raises(TooLargeError, match="can't be cut below") as caught:
        bundle.view(conversation([500, 500]), limit_tokens=50, on_overflow="cut")
    assert caught.value.limit == 50 < caught.value.actual


def test_many_cuts_share_a_note(bundle: Bundle) -> None:
    view = bundle.view(conversation([100] * 80), limit_tokens=7000, on_overflow="cut")
    (note,) = [note for note in view.notes if note.kind == "cut"]
    assert note.where == "span"


@pytest.mark.parametrize(
    "text", ["word " * 10_000_000, "x" * 20_000_000, "\n" * 20_000_000, "ä漢 <|im_end|>" * 1_000_000]
)
def test_huge_texts_take_seconds(bundle: Bundle, text: str) -> None:
    span = Span((Message("user", (Text("a" + text + "b"),)),), (Message("assistant", (Text("Fine."),)),))
    start = time.perf_counter()
    with pytest.raises(TooLargeError, match="at least"):
        bundle.view(span, limit_tokens=20_000)
    view = bundle.view(span, limit_tokens=20_000, on_overflow="cut")
    assert 15_000 < len(view.tokens) <= 20_000
    assert len(control(bundle, view)) == 5
    assert time.perf_counter() - start < 20


def test_ten_thousand_messages_are_cut_in_seconds(bundle: Bundle) -> None:
    start = time.perf_counter()
    view = bundle.view(conversation([3] * 10_000), limit_tokens=20_000, on_overflow="cut")
    assert 15_000 < len(view.tokens) <= 20_000
    assert time.perf_counter() - start < 20
