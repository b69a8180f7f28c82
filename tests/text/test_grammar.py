"""Masks against a walk over all tokens; whatever is drawn under them is JSON that its schema allows."""

import json
import random
from typing import Any

import jsonschema_rs
import numpy as np
import pytest

from mainspring.text.tokenizer import Tokenizer
from support.tiny_tokenizer import tiny_tokenizer_json

pytest.importorskip("llguidance")
from mainspring.text.grammar import KEPT, Grammar, GrammarError, Grammars, check_grammar

TOKENIZER = Tokenizer(tiny_tokenizer_json().encode(), fast=False)
ENDS = (TOKENIZER.control["<|im_end|>"], TOKENIZER.control["<|endoftext|>"])
GRAMMARS = Grammars(TOKENIZER, ENDS)
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 0, "maximum": 99},
                   "kind": {"enum": ["warm", "cold"]}},
    "required": ["city", "days", "kind"], "additionalProperties": False,
}  # fmt: skip


def made(schema: Any = SCHEMA) -> Grammar:
    return GRAMMARS.grammar("json_schema", json.dumps(schema))


def allowed(row: np.ndarray) -> set[int]:
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits[: TOKENIZER.vocab_size]).tolist())


def test_whatever_is_drawn_follows_the_schema_and_ends() -> None:
    validator = jsonschema_rs.validator_for(SCHEMA)
    for seed in range(20):
        chance, grammar, tokens = random.Random(seed), made(), []
        for _ in range(400):
            options = allowed(grammar.masks([])[0])
            assert options
            token = chance.choice(sorted(options))
            if token in ENDS:
                break
            tokens.append(token)
            grammar.advance([token])
        else:
            pytest.fail("it never ended")
        assert grammar.complete
        assert not set(tokens) & set(TOKENIZER.control.values())
        validator.validate(json.loads(TOKENIZER.decode(tokens)))


def test_looking_over_drafts_equals_going_there_and_leaves_no_trace() -> None:
    text = '{"city":"Paris","days":12,"kind":"warm"}'
    tokens = TOKENIZER.encode_text(text).tolist()
    looked, walked = made(), made()
    for at in range(len(tokens)):
        rows = looked.masks(tokens[at : at + 4])
        other = made()
        other.advance(tokens[:at])
        for number in range(len(rows)):
            assert allowed(rows[number]) == allowed(other.masks([])[0]), (at, number)
            if number < len(rows) - 1:
                other.advance([tokens[at + number]])
        assert len(rows) == 1 + min(4, len(tokens) - at)
        looked.advance([tokens[at]])
        walked.advance([tokens[at]])
        assert np.array_equal(looked.masks([]), walked.masks([]))
    assert allowed(looked.masks([])[0]) == set(ENDS)
    assert allowed(looked.masks(tokens)[0]) == set(ENDS)


def test_drafts_behind_a_forbidden_one_are_not_looked_at() -> None:
    good = TOKENIZER.encode_text('{"city":"').tolist()
    bad = TOKENIZER.encode_text("no").tolist()
    assert len(made().masks([*good[:1], *bad, *good])) == 2
    assert len(made().masks([ENDS[0]])) == 1


def test_an_emitted_token_that_is_forbidden_is_an_error() -> None:
    with pytest.raises(GrammarError, match="forbids"):
        made().advance(TOKENIZER.encode_text("no").tolist())


@pytest.mark.parametrize("source", ['{"type": "nothing"}', "[]", "{", '{"type": "object", "properties": 3}'])
def test_what_is_no_schema_is_named(source: str) -> None:
    with pytest.raises(GrammarError) as caught:
        check_grammar("json_schema", source, "response_format.json_schema.schema")
    assert caught.value.param == "response_format.json_schema.schema"
    with pytest.raises(GrammarError):
        GRAMMARS.grammar("json_schema", source)


def test_regular_expressions_too() -> None:
    grammar = GRAMMARS.grammar("regex", "(Yes|No)")
    starts = {TOKENIZER.decode([token]) for token in allowed(grammar.masks([])[0])}
    assert starts <= {"Y", "Ye", "Yes", "N", "No"}
    assert {"Yes", "No"} <= starts


def test_the_last_grammars_are_kept_and_replies_do_not_share_a_place() -> None:
    grammars = Grammars(TOKENIZER, ENDS)
    first, second = (grammars.grammar("regex", "ab*") for _ in range(2))
    first.advance(TOKENIZER.encode_text("a").tolist())
    assert (first.complete, second.complete) == (True, False)
    for number in range(KEPT + 3):
        grammars.grammar("regex", f"a{{{number}}}b")
    assert len(grammars._kept) == KEPT
