"""One cut for text, ids and what goes with them; nothing held is lost."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.text.reply.deltas import CallEnded, ContentText
from mainspring.text.reply.parser import Parser
from mainspring.text.reply.reply import Reply
from mainspring.text.tokenizer import Tokenizer
from support.tiny_tokenizer import tiny_tokenizer_json

TOKENIZER = Tokenizer(tiny_tokenizer_json().encode(), fast=False)
END = TOKENIZER.control["<|im_end|>"]
START = TOKENIZER.control["<|im_start|>"]


def reply(**options: Any) -> Reply:
    return Reply(TOKENIZER, ends=options.pop("ends", (END,)), **options)


def ids(text: str) -> list[int]:
    return [int(each) for each in TOKENIZER.encode_text(text)]


def content(deltas: list[Any]) -> str:
    return "".join(each.text for each in deltas if isinstance(each, ContentText))


@settings(deadline=None, max_examples=60)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.lists(st.integers(1, 5), max_size=8))
def test_blocks_do_not_matter_and_all_text_comes(text: str, sizes: list[int]) -> None:
    """Emoji and CJK are several tokens here: blocks cut them anywhere."""
    tokens = ids(text)
    one, shown, at = reply(), "", 0
    for size in [*sizes, len(tokens)]:
        piece = content(one.push(tokens[at : at + size]))
        assert "\ufffd" not in piece or "\ufffd" in text
        shown, at = shown + piece, at + size
    shown += content(one.finish())
    assert shown == TOKENIZER.decode(tokens)
    assert (one.tokens, one.released) == (tokens, len(tokens))


@pytest.mark.parametrize("block", [1, 2, 3, 100])
def test_a_stop_string_inside_an_accepted_block_cuts_everything_at_one_token(block: int) -> None:
    before, stop, behind = ids("The quick brown fox"), ids(" jumps over"), ids(" the lazy dog")
    tokens = before + stop + behind
    one, shown = reply(stops=["jumps"]), ""
    for at in range(0, len(tokens), block):
        shown += content(one.push(tokens[at : at + block]))
        if one.ended:
            break
    shown += content(one.finish())
    assert shown == "The quick brown fox "
    assert one.stop == "jumps"
    # The last token is the one that completes the stop string: with fewer it is not there yet.
    assert "jumps" in TOKENIZER.decode(one.tokens)
    assert "jumps" not in TOKENIZER.decode(one.tokens[:-1])
    assert tokens[: len(one.tokens)] == one.tokens
    assert one.released == len(one.tokens)


def test_tokens_are_released_with_their_text() -> None:
    one = reply(stops=["fox jumps"])
    one.push(ids("a"))
    known = one.released
    one.push(ids(" fox"))
    assert (known, one.released) == (1, len(one.tokens) - len(ids(" fox")) + _outside(" fox", "fox"))
    one.push(ids(" x"))
    assert one.released == len(one.tokens)


def _outside(text: str, held: str) -> int:
    """Tokens of `text` that end before `held` begins."""
    tokens = ids(text)
    room = len(text) - len(held)
    return sum(len(TOKENIZER.decode(tokens[: n + 1])) <= room for n in range(len(tokens)))


def test_an_end_token_ends_it_and_is_counted_and_not_shown() -> None:
    one = reply()
    assert content(one.push([*ids("Yes"), END, *ids("No")])) == "Yes"
    assert (one.tokens[-1], one.ended, one.stop) == (END, True, None)
    assert one.finish() == []
    assert one.released == len(one.tokens) == len(ids("Yes")) + 1


def test_a_stop_id_is_named() -> None:
    [stop] = ids("x")
    one = reply(stop_ids=(stop,))
    assert content(one.push([*ids("Yes"), stop, *ids("No")])) == "Yes"
    assert (one.ended, one.stop) == (True, stop)


def test_nothing_ends_it_before_the_least_tokens() -> None:
    tokens = [*ids("a"), END, *ids("Yes No")]
    one = reply(least=3, stops=["a"])
    deltas = one.push(tokens)
    assert content([*deltas, *one.finish()]) == "aYes No"
    assert one.tokens == tokens


def test_special_tokens_have_no_text_unless_it_is_wanted() -> None:
    tokens = [*ids("a"), START, *ids("b")]
    hidden, shown = reply(), reply(special=True)
    assert content(hidden.push(tokens)) == "ab"
    assert content(shown.push(tokens)) == "a<|im_start|>b"


def test_a_character_cut_by_the_end_is_marked_and_a_held_stop_comes_out() -> None:
    one = reply(stops=["Yes!"])
    deltas = one.push([*ids("Yes"), *ids("\U0001f642")[:1]])
    assert content([*deltas, *one.finish()]) == "Yes\ufffd"


def test_only_one_call_where_only_one_is_wanted() -> None:
    call = "<tool_call>\n<function=f>\n</function>\n</tool_call>\n"
    one = reply(parser=Parser(schemas={"f": {}}), one_call=True)
    tokens = ids(call + call)
    deltas = [delta for token in tokens for delta in one.push([token])]
    assert one.ended
    deltas += one.finish()
    assert [each.index for each in deltas if isinstance(each, CallEnded)] == [0]
    assert content(deltas) == ""
    assert TOKENIZER.decode(one.tokens).rstrip() == call.rstrip()
