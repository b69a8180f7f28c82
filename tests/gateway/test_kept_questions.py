"""Sets of questions that are asked again and again: what is kept of them is bounded, as arrays and as they are sent."""

import numpy as np
import pytest

from mainspring.gateway import assemble
from mainspring.gateway.assemble import Assembler, Branches
from mainspring.gateway.calls import ScoreCall, Terms
from mainspring.text.question import Behavior, Choice, Question, YesNo
from support.gateway import packed


@pytest.fixture
def assembler() -> Assembler:
    return Assembler.unpack(packed()[1])


def call(*questions: Question, tenant: str = "") -> ScoreCall:
    return ScoreCall(model="", span={}, questions=questions, terms=Terms(request_id="r", slo="batch", tenant=tenant))


def held_bytes(branches: Branches) -> int:
    """What it takes in memory once it was sent."""
    arrays = (branches.lengths, branches.tokens, branches.label_counts, branches.label_ids)
    return sum(each.nbytes for each in arrays) + sum(map(len, branches.sent))


def test_what_is_kept_stays_within_its_bytes(assembler: Assembler, monkeypatch: pytest.MonkeyPatch) -> None:
    one = held_bytes(assembler.branches(call(Behavior("a", "the reply is number 100"))))
    monkeypatch.setattr(assemble, "KEPT_BYTES", room := 9 * one)
    for number in range(101, 140):
        made = assembler.branches(call(Behavior("a", f"the reply is number {number}")))
        held = sum(map(held_bytes, assembler._kept.values()))
        assert held <= room
        assert held == assembler._kept_bytes
        assert assembler.branches(call(Behavior("a", f"the reply is number {number}"))) is made
    assert len(assembler._kept) >= 8


def test_a_set_that_would_take_a_quarter_of_it_is_not_kept(
    assembler: Assembler, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = call(Behavior("a", "the reply is short"))
    size = held_bytes(assembler._tokenised(asked))
    monkeypatch.setattr(assemble, "KEPT_BYTES", 4 * size - 1)
    assembler.branches(asked)
    assert not assembler.knows(asked)
    monkeypatch.setattr(assemble, "KEPT_BYTES", 4 * size)
    assembler.branches(asked)
    assert assembler.knows(asked)


def test_a_set_is_known_by_all_that_it_says_and_by_whose_it_is(assembler: Assembler) -> None:
    """Questions of two kinds with the same words are not the same."""
    assembler.branches(call(Behavior("a", "is it short")))
    others = (Behavior("a", "is it long"), Behavior("b", "is it short"), YesNo("a", "is it short"),
              Choice("a", "is it short", ("yes", "no")))  # fmt: skip
    assert assembler.knows(call(Behavior("a", "is it short")))
    assert not any(assembler.knows(call(other)) for other in others)
    assert not assembler.knows(call(Behavior("a", "is it short"), tenant="bob"))


def test_what_is_sent_are_the_arrays(assembler: Assembler) -> None:
    made = assembler.branches(call(Behavior("a", "the reply is short"), Behavior("b", "the reply is very, very long")))
    arrays = [np.frombuffer(each, "<u4").tolist() for each in made.sent]
    assert arrays == [made.lengths.tolist(), made.tokens.tolist(), made.label_counts.tolist(), made.label_ids.tolist()]
    assert made.longest == max(arrays[0])
    assert made.labels == len(arrays[3])


@pytest.mark.parametrize(("counts", "even"), [((3,), True), ((3, 3), True), ((3, 2), False), ((2, 3, 2), False)])
def test_tables_are_taken_whole_only_where_all_questions_have_as_many_labels(
    counts: tuple[int, ...], even: bool
) -> None:
    words = np.array(counts, np.uint32)
    assert Branches(words, words, words, words, counts).is_even is even
