"""Pieces of a byte-level vocabulary: no half characters, nothing lost, nothing taken back."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.text.detokenise import MOST_HELD, Detokeniser
from mainspring.text.tokenizer import Tokenizer
from support.tiny_tokenizer import tiny_tokenizer_json

TOKENIZER = Tokenizer(tiny_tokenizer_json().encode(), fast=False)


def pieces_of(tokens: list[int]) -> list[str]:
    detokeniser = Detokeniser(TOKENIZER)
    return [*(detokeniser.push(token) for token in tokens), detokeniser.finish()]


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=30))
def test_characters_come_whole_and_in_order(text: str) -> None:
    tokens = TOKENIZER.encode_text(text).tolist()
    pieces = pieces_of(tokens)
    assert "".join(pieces) == TOKENIZER.decode(tokens)
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_waits_for_its_last_byte() -> None:
    tokens = TOKENIZER.encode_text("\U0001f642").tolist()
    assert len(tokens) > 1  # else nothing is tested
    assert pieces_of(tokens) == [*[""] * (len(tokens) - 1), "\U0001f642", ""]


def test_what_never_becomes_text_is_not_held_for_ever() -> None:
    [first, *_] = TOKENIZER.encode_text("\U0001f642").tolist()
    detokeniser = Detokeniser(TOKENIZER)
    assert any(detokeniser.push(first) for _ in range(MOST_HELD))


def test_a_cut_character_is_marked_at_the_end() -> None:
    [first, *_] = TOKENIZER.encode_text("\U0001f642").tolist()
    assert pieces_of([first]) == ["", "\ufffd"]
