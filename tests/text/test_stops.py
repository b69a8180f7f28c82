"""Stop strings however the text is cut, against a search in the whole text."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mainspring.text.stops import Stops

TEXT = st.text("ab\u00e9", max_size=24)
STOPS = st.lists(st.text("ab\u00e9", min_size=1, max_size=4), max_size=4)


def cut_in_whole(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The oracle: the first place where any stop string is complete, the longest of those."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(TEXT, STOPS, st.lists(st.integers(0, 24), max_size=6))
def test_the_text_ends_before_the_first_complete_stop_string(text: str, stops: list[str], cuts: list[int]) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    finder = Stops(stops)
    shown = ""
    for start, end in pairwise(places):
        shown += finder.push(text[start:end])
        assert text.startswith(shown)  # nothing is ever taken back
        if finder.found is None:
            assert finder.held < max(map(len, stops), default=1)
    shown += finder.finish()
    assert (shown, finder.found) == cut_in_whole(text, stops)


def test_what_may_begin_one_waits_and_comes_when_it_does_not() -> None:
    finder = Stops(["END"])
    assert [finder.push(each) for each in ("a", "E", "N", "x", "EN")] == ["a", "", "", "ENx", ""]
    assert finder.finish() == "EN"


def test_after_one_was_found_nothing_comes() -> None:
    finder = Stops(["\n\n"])
    assert finder.push("one\n\ntwo") == "one"
    assert (finder.push("three"), finder.finish()) == ("", "")
