"""Ids of texts that came before: the same ids, kept apart by salt, within a bound."""

import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.hub import EMBEDDED, model_folder
from mainspring.text.bundle import Bundle
from mainspring.text.chat import texts_of
from mainspring.text.formats import read_span
from mainspring.text.segments import ENTRY_BYTES, LEAST_CHARS, SegmentCache

LONG = "All of this was said before. " * 4


def ids(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint32)


def test_what_was_kept_is_found_under_its_salt_alone() -> None:
    cache = SegmentCache(1 << 20)
    cache.keep(b"a", [LONG], [ids(9)])
    assert np.array_equal(cache.find(b"a", [LONG])[LONG], ids(9))
    assert not cache.find(b"b", [LONG])
    assert (cache.hits, cache.misses) == (len(LONG), len(LONG))


def test_short_and_huge_texts_are_not_kept() -> None:
    cache = SegmentCache(10_000)
    texts = ["x" * (LEAST_CHARS - 1), "y" * 2000]
    cache.keep(b"", texts, [ids(1), ids(1)])
    assert len(cache) == cache.bytes == 0
    assert not cache.find(b"", texts)


def test_the_oldest_goes_first_and_the_bytes_add_up() -> None:
    texts = [f"{number:04d} " + LONG for number in range(100)]
    entry = len(texts[0]) + 4 * 8 + ENTRY_BYTES
    cache = SegmentCache(20 * entry)
    cache.keep(b"", texts[:20], [ids(8)] * 20)
    assert cache.bytes == 20 * entry
    cache.find(b"", texts[:1])  # used again: number 1 is the oldest now
    cache.keep(b"", texts[20:21], [ids(8)])
    assert cache.bytes == 20 * entry
    assert set(cache.find(b"", texts[:3])) == {texts[0], texts[2]}
    cache.keep(b"", texts, [ids(8)] * 100)
    assert len(cache) == 20


def test_a_kept_slice_does_not_keep_the_array_it_is_of() -> None:
    cache = SegmentCache(1 << 20)
    cache.keep(b"", [LONG], [ids(1_000_000)[:5]])
    assert cache.find(b"", [LONG])[LONG].base is None


def test_a_large_cache_is_full_of_what_came_last_and_no_table_of_it_is_large() -> None:
    """A table of all entries takes 4 MB and is built anew each time its rows are used up, old and new side by side."""
    cache = SegmentCache(64 << 20)
    entry = 1000 + 4 * 240 + ENTRY_BYTES
    tables = 0
    for number in range(90_000):
        cache.keep(b"", [f"{number:08d}" + "x" * 992], [ids(240)])
        if number % 100 == 0:
            tables = max(tables, *(sys.getsizeof(part.kept) for part in cache._parts))
    assert 0.99 * cache.max_bytes < cache.bytes == entry * len(cache) <= cache.max_bytes
    kept = [bool(cache.find(b"", [f"{number:08d}" + "x" * 992])) for number in range(90_000)]
    assert all(kept[-25_000:])
    assert not any(kept[:-35_000])
    assert tables < 1 << 19


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.sampled_from([LONG, LONG + "!", "short", "Grüße, 你好 " * 8, "<|end|>" * 9]), min_size=2, max_size=6)
)
def test_a_view_of_known_texts_is_the_view(texts: list[str]) -> None:
    bundle = Bundle.load(model_folder(EMBEDDED))
    turns = [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(texts)]
    span = read_span({"input": turns, "output": {"role": "assistant", "content": LONG}}).span
    rendered = bundle.rendered(span)
    asked = texts_of(bundle.chat.segments(rendered.pieces))
    cache = SegmentCache(1 << 20)
    cache.keep(b"", asked, bundle.tokenizer.encode_texts(asked))
    known = cache.find(b"", asked)

    def encode(wanted: list[str]) -> list[np.ndarray]:
        missing = [text for text in wanted if text not in known]
        found = dict(zip(missing, bundle.tokenizer.encode_texts(missing), strict=True))
        return [known[text] if text in known else found[text] for text in wanted]

    assert any(text in known for text in asked)
    again = bundle.view_of(rendered, span, encode=encode)  # type: ignore[arg-type]
    assert np.array_equal(again.tokens, bundle.view(span).tokens)
