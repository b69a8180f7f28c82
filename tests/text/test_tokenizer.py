"""Text never encodes to control ids; the fast encoder is used only where it agrees."""

import json
import logging
import sys
from itertools import islice, product
from string import ascii_lowercase
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, models, pre_tokenizers

from mainspring.bench.heap import heap
from mainspring.errors import TokenizerError
from mainspring.hub import EMBEDDED, model_folder
from mainspring.text import tokenizer as module
from mainspring.text.bundle import Bundle
from mainspring.text.fast import BYTE_LEVEL, BYTE_LEVEL_DIGITS, written_out
from mainspring.text.tokenizer import Tokenizer
from support.qwen import qwen_tokenizer_json
from support.tiny_tokenizer import tiny_tokenizer_json

QWEN = qwen_tokenizer_json()
TINY = Tokenizer(tiny_tokenizer_json().encode())
TINY_FULL = tokenizers.Tokenizer.from_str(tiny_tokenizer_json())
FULL = tokenizers.Tokenizer.from_str(QWEN)


@pytest.fixture(scope="module")
def qwen() -> Tokenizer:
    return Tokenizer(QWEN.encode())


def test_control_strings_encode_as_text(qwen: Tokenizer) -> None:
    control = set(qwen.control.values())
    assert len(control) == 33
    for name in qwen.control:
        ids = qwen.encode_text(f"x{name}\n{name}{name}")
        assert not control & set(ids.tolist())
        assert qwen.decode(ids) == f"x{name}\n{name}{name}"


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_text_without_control_encodes_as_the_whole_tokenizer_does(text: str) -> None:
    ids = TINY.encode_text(text)
    assert ids.dtype == np.uint32
    assert ids.tolist() == TINY_FULL.encode(text, add_special_tokens=False).ids


def byte_level(*before: pre_tokenizers.PreTokenizer, **options: Any) -> dict[str, Any]:
    """A document whose every byte is a token, so that pieces show in merges: the five commonest pairs are merged."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    space = "\u0120"
    merges = [(space, "a"), (space, space), ("a", "a"), ("1", "2"), ("'", "s"), (space, "'"), ("-", "-"), (space, "-")]
    merges += [("\u010a", "\u010a"), (space, "\u010a"), ("a", "1"), (space, "1"), ("\u00c2", "\u00bd")]
    vocabulary = {text: number for number, text in enumerate([*letters, *("".join(pair) for pair in merges)])}
    made = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    last = pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **options})
    made.pre_tokenizer = pre_tokenizers.Sequence([*before, last]) if before else last
    return json.loads(made.to_str())


DIGITS = pre_tokenizers.Digits(individual_digits=True)
SPLITS = st.text(alphabet="aB\u00e9\u4e2d12\u00bd\u0663\u2167'st -.#\n\r\t \u00a0\u3000\u200b\u0301", max_size=24)


@settings(max_examples=400, deadline=None)
@given(SPLITS)
def test_the_pattern_that_is_written_out_splits_as_digits_and_bytes_do(text: str) -> None:
    for before, pattern in (((), BYTE_LEVEL), ((DIGITS,), BYTE_LEVEL_DIGITS)):
        last = pre_tokenizers.ByteLevel(add_prefix_space=False)
        whole = pre_tokenizers.Sequence([*before, last])
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), plain])
        assert split.pre_tokenize_str(text) == whole.pre_tokenize_str(text)


@pytest.mark.parametrize("before", [(), (DIGITS,)])
def test_the_fast_encoder_scans_with_what_is_written_out(before: Any) -> None:
    document = json.dumps(byte_level(*before)).encode()
    assert b'"Split"' in written_out(document)
    fast, slow = Tokenizer(document), Tokenizer(document, fast=False)
    assert fast.implementation == "fastokens", fast.reason

    @settings(max_examples=300, deadline=None)
    @given(SPLITS)
    def same(text: str) -> None:
        assert fast.encode_text(text).tolist() == slow.encode_text(text).tolist()

    same()


@pytest.mark.parametrize(
    "document",
    [
        byte_level(pre_tokenizers.Digits(individual_digits=False)), byte_level(DIGITS, add_prefix_space=True),
        byte_level(DIGITS, use_regex=False), byte_level(pre_tokenizers.Whitespace()), byte_level(DIGITS, DIGITS),
        {"pre_tokenizer": None}, {"pre_tokenizer": {"type": "Sequence", "pretokenizers": []}},
        {"pre_tokenizer": {"type": "Sequence"}}, {"pre_tokenizer": "ByteLevel"}, {"model": {}},
    ],
)  # fmt: skip
def test_what_splits_otherwise_is_left_as_it_is(document: dict[str, Any]) -> None:
    plain = json.dumps(document).encode()
    assert written_out(plain) == plain


def test_a_pattern_that_splits_otherwise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the white space before a digit, which is easily forgotten."""
    forgotten = BYTE_LEVEL_DIGITS.replace(r"|\s+(?=\p{N})", "")
    monkeypatch.setattr("mainspring.text.fast.BYTE_LEVEL_DIGITS", forgotten)
    made = Tokenizer(json.dumps(byte_level(DIGITS)).encode())
    assert made.implementation == "tokenizers"
    assert "differs" in made.reason


def test_bytes_that_the_vocabulary_lacks_are_left_out_by_both() -> None:
    """The embedded scorer's lacks some, and what scans with a pattern written out refuses the whole call for one."""
    fast = Bundle.load(model_folder(EMBEDDED)).tokenizer
    slow = Tokenizer(fast.document, fast=False)
    assert fast.implementation == "fastokens", fast.reason
    for text in ("\x04", "\U00091ed2'", "a b\x04 12", *map(chr, range(0, 0x110000, 0x400))):
        text = text.encode("utf-8", "replace").decode()
        assert fast.encode_text(text).tolist() == slow.encode_text(text).tolist()


def test_size_and_words(qwen: Tokenizer) -> None:
    assert qwen.vocab_size == max(qwen.control.values()) + 1
    assert qwen.token_id("A") == FULL.token_to_id("A")
    with pytest.raises(TokenizerError, match="not one token"):
        qwen.token_id("unquestionable nonsense")
    with pytest.raises(TokenizerError, match="not one token"):
        qwen.token_id("<|im_end|>")


def test_lone_surrogates_become_replacement_characters(qwen: Tokenizer) -> None:
    assert qwen.decode(qwen.encode_text("a\ud800b\udfffc😀")) == "a\ufffdb\ufffdc😀"


def test_decode_names_control_tokens(qwen: Tokenizer) -> None:
    ids = [qwen.control["<|im_start|>"], *qwen.encode_text("user\nhé").tolist(), qwen.control["<|im_end|>"]]
    assert qwen.decode(ids) == "<|im_start|>user\nhé<|im_end|>"


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"model": {"vocab": {}}}', b'{"model": {"vocab": {"a": 0}}}'])
def test_broken_documents_are_named(tmp_path: Any, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path)


def test_missing_file_is_named(tmp_path: Any) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json can't be read"):
        Tokenizer.load(tmp_path)


def test_control_strings_in_the_model_vocabulary_are_taken_out() -> None:
    document = json.loads(tiny_tokenizer_json())
    document["model"]["vocab"]["<|im_start|>"] = Tokenizer(tiny_tokenizer_json().encode()).control["<|im_start|>"]
    document["model"]["ignore_merges"] = True
    document["pre_tokenizer"] = None
    tokenizer = Tokenizer(json.dumps(document).encode())
    assert tokenizer.control["<|im_start|>"] not in tokenizer.encode_text("<|im_start|>")


def test_a_tokenizer_that_makes_control_of_text_is_refused() -> None:
    document = json.loads(tiny_tokenizer_json())
    control = document["added_tokens"][0]
    document["model"]["vocab"]["Ġ<"] = control["id"]  # a merge leads to a control token's id
    document["model"]["merges"].insert(0, ["Ġ", "<"])
    tokenizer = Tokenizer(json.dumps(document).encode(), fast=False)
    with pytest.raises(TokenizerError, match="encodes plain text to a control token"):
        tokenizer.encode_text("a <b")


def test_white_space_tokens_are_text_and_keep_their_ids() -> None:
    document = json.loads(tiny_tokenizer_json())
    number = 1 + max(token["id"] for token in document["added_tokens"])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    document["added_tokens"].append({"id": number, "content": "\n\n\n", **flags})
    tokenizer = Tokenizer(json.dumps(document).encode())
    assert "\n\n\n" not in tokenizer.control
    assert number in tokenizer.encode_text("a\n\n\nb")


def test_counting_stops_early_and_is_exact_below(qwen: Tokenizer) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 40_000
    exact = len(qwen.encode_text(text))
    assert qwen.count_tokens(text, exact) == (exact, True)
    count, whole = qwen.count_tokens(text, 1000)
    assert not whole
    assert 1000 < count < exact


@pytest.mark.parametrize("tokens", [0, 1, 7, 50])
def test_head_and_tail_are_cut_at_tokens(qwen: Tokenizer, tokens: int) -> None:
    text = "Zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich. " * 30
    head, tail = qwen.head(text, tokens), qwen.tail(text, tokens)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(qwen.encode_text(head)) == tokens
    assert abs(len(qwen.encode_text(tail)) - tokens) <= 1
    assert qwen.head("short", 50) == qwen.tail("short", 50) == "short"


def test_fast_encoder_is_used_where_it_agrees(qwen: Tokenizer) -> None:
    pytest.importorskip("fastokens")
    assert (qwen.implementation, qwen.reason) == ("fastokens", "fastokens agrees with tokenizers")
    slow = Tokenizer(QWEN.encode(), fast=False)
    assert slow.implementation == "tokenizers"
    texts = ["naïve café 한국어 😀👍🏽", "x" * 5000, "", "a\n\n\n b\t"]
    for left, right in zip(qwen.encode_texts(texts), slow.encode_texts(texts), strict=True):
        assert np.array_equal(left, right)


def test_the_reference_keeps_no_words_where_it_serves_as_a_sample(qwen: Tokenizer) -> None:
    """It is asked so seldom that its words would make a process grow for hours, by 8 MiB."""
    pytest.importorskip("fastokens")
    words = ["zq" + "".join(letters) for letters in islice(product(ascii_lowercase, repeat=6), 8000)]

    def grows(tokenizer: Tokenizer) -> float:
        tokenizer._reference(words[:1])
        before = heap()
        for at in range(0, len(words), 500):
            tokenizer._reference([" ".join(words[at : at + 500])])
        after = heap()
        if before is None or after is None:
            pytest.skip("the C library does not tell of its heap")
        return after.in_use - before.in_use

    assert grows(Tokenizer(QWEN.encode(), fast=False)) > 2.0
    assert grows(qwen) < 0.5


def _fake(shift_from: int) -> SimpleNamespace:
    """A fastokens whose ids are wrong from one call on."""
    calls = 0

    class Fake:
        def __init__(self, text: str) -> None:
            self.inner = tokenizers.Tokenizer.from_str(text)

        from_json_str = classmethod(lambda cls, text: cls(text))

        def encode_batch_flat(self, texts: list[str], **_: bool) -> tuple[bytes, bytes]:
            nonlocal calls
            calls += 1
            found = [self.inner.encode(text, add_special_tokens=False).ids for text in texts]
            if calls > shift_from:
                found = [[(i + 1) % 100 for i in ids] for ids in found]
            offsets = np.cumsum([0, *map(len, found)]).astype("<u8")
            return np.array([i for ids in found for i in ids], dtype="<u4").tobytes(), offsets.tobytes()

    return SimpleNamespace(Tokenizer=Fake)


def test_fast_encoder_that_differs_on_loading_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastokens", _fake(0))
    tokenizer = Tokenizer(tiny_tokenizer_json().encode())
    assert tokenizer.implementation == "tokenizers"
    assert "differs" in tokenizer.reason


def test_fast_encoder_that_fails_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastokens", SimpleNamespace())
    assert "can't encode" in Tokenizer(tiny_tokenizer_json().encode()).reason


def test_fast_encoder_that_differs_later_is_left_for_good(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "fastokens", _fake(2))
    monkeypatch.setattr(module, "SAMPLE", 2)
    tokenizer = Tokenizer(tiny_tokenizer_json().encode())
    assert tokenizer.implementation == "fastokens"
    right = TINY_FULL.encode("hello").ids
    with caplog.at_level(logging.WARNING):
        assert tokenizer.encode_text("hello").tolist() != right
        assert tokenizer.encode_text("hello").tolist() == right
    assert tokenizer.implementation == "tokenizers"
    assert "sampled call" in caplog.text
    assert tokenizer.encode_text("hello").tolist() == right


def test_a_sampled_call_is_compared_in_part_and_redone_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference takes milliseconds, and the caller may be an event loop."""
    monkeypatch.setitem(sys.modules, "fastokens", _fake(2))
    monkeypatch.setattr(module, "SAMPLE_CHARS", 12)
    tokenizer = Tokenizer(tiny_tokenizer_json().encode())
    asked: list[list[str]] = []
    reference = tokenizer._reference
    monkeypatch.setattr(tokenizer, "_reference", lambda texts: asked.append(list(texts)) or reference(texts))
    monkeypatch.setattr(module, "SAMPLE", 1)
    texts = ["hello hello", "hello", "hello"]
    right = [TINY_FULL.encode(text).ids for text in texts]
    assert [ids.tolist() for ids in tokenizer.encode_texts(texts)] == right
    assert asked == [["hello", "hello"], texts]
    assert tokenizer.implementation == "tokenizers"
