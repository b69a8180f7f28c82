"""Teacher tokens as runs of student tokens: the same text, the same places, the same probabilities."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.text.tokenizer import Tokenizer
from mainspring.train.distill.vocabulary import NONE, Marginal, Turn, Vocabulary, teacher_tokenizer
from mainspring.train.gguf import read_gguf
from support.gguf import write_tiny_gguf, write_tiny_sources

Made = tuple[Vocabulary, Tokenizer, Tokenizer]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("vocabulary")
    write_tiny_gguf(folder / "tiny.gguf", layers=1)
    source = read_gguf(folder / "tiny.gguf")
    student = Tokenizer.load(write_tiny_sources(folder / "sources"), fast=False)
    return Vocabulary.of(source, student), teacher_tokenizer(source), student


@settings(deadline=None)
@given(
    st.text(st.characters(codec="ascii"), max_size=60) | st.text(st.sampled_from("the ing.Th\n 12ouera"), max_size=60)
)
def test_pieces_are_the_students_own_tokens_of_the_text(made: Made, text: str) -> None:
    vocabulary, teacher, student = made
    pieces = [piece for token in teacher.encode_text(text) for piece in vocabulary.pieces[token]]
    assert pieces == student.encode_text(text).tolist()


def test_some_tokens_have_several_pieces(made: Made) -> None:
    assert max(map(len, made[0].pieces)) > 1  # else the tests above and below say little


def test_places_and_replies_of_a_chat(made: Made) -> None:
    v, teacher, student = made
    long = next(number for number, run in enumerate(v.pieces) if len(run) == 2)
    asked, answer = teacher.encode_text("Why?").tolist(), [*teacher.encode_text("So").tolist(), long]
    system = Turn("system", teacher.encode_text("Be kind.").tolist())
    found = v.aligned([[Turn("user", asked), Turn("assistant", answer)]] * 2, hidden=[system])
    text = found.teacher[1].tolist()
    before = [*v.opening["system"], *system.tokens, *v.close, *v.opening["user"]]
    assert text == [*before, *asked, *v.close, *v.opening["assistant"], *answer, *v.close]
    pieces = [piece for token in answer for piece in v.pieces[token]]
    own = found.student[1].tolist()
    start = 1 + len(asked) + 1
    assert own == [v.roles["user"], *asked_pieces(v, asked), v.end, v.roles["assistant"], *pieces, v.end]
    assert student.decode(own) == f"<|user|>Why?<|end|><|assistant|>{teacher.decode(answer)}<|end|>"
    places = found.places[1].tolist()
    # Both stand at one place: what the teacher has read up to there is what the student has read.
    assert [text[p] for p in places[1 : 1 + len(asked)]] == asked
    assert text[places[0]] == v.opening["user"][-1]
    assert text[places[start]] == v.opening["assistant"][-1]
    assert places[-3:] == [NONE, places[-2], NONE]
    assert text[places[-2]] == long
    assert places[start - 1] == NONE
    reply = found.reply[1].tolist()
    assert reply == [False] * start + [True] * (1 + len(pieces)) + [False]


def asked_pieces(v: Vocabulary, asked: list[int]) -> list[int]:
    return [piece for token in asked for piece in v.pieces[token]]


def test_probabilities_go_to_the_first_piece_and_the_end_to_the_end(made: Made) -> None:
    v = made[0]
    logits = torch.randn(3, len(v.pieces), generator=torch.Generator().manual_seed(0))
    found = Marginal(v)(logits)
    assert found.sum(-1).tolist() == pytest.approx([1, 1, 1], abs=1e-5)
    p = logits.double().exp()
    silent = [n for n, first in enumerate(v.first) if first < 0]
    p[:, silent] = 0
    p /= p.sum(-1, keepdim=True)
    expected = np.zeros((3, v.size))
    for number, run in enumerate(v.pieces):
        if run:
            expected[:, run[0]] += p[:, number].numpy()
    expected[:, v.end] += p[:, v.close[0]].numpy()
    assert np.abs(found.numpy() - expected).max() < 1e-6
    assert expected[:, v.end].min() > 0


def test_english_leaves_other_scripts_and_program_text_out(made: Made) -> None:
    v, teacher, _ = made
    for text in ("Plain words, and \u201cquotes\u201d\u2026\n", "1 + 1 = 2"):
        assert all(v.english[token] for token in teacher.encode_text(text)), text
    for text in ("\u0416\u0416", "`x`", "{", "a_b"):
        assert not all(v.english[token] for token in teacher.encode_text(text)), text


def test_a_vocabulary_that_is_no_cut_is_refused(made: Made, tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf", layers=1)
    document = json.loads(made[2].document)
    model = document["model"]
    model["vocab"] = {word: number for word, number in model["vocab"].items() if "t" not in word}
    model["merges"] = [pair for pair in model["merges"] if "t" not in pair]
    with pytest.raises(ValueError, match="no tokens for 't'"):
        Vocabulary.of(read_gguf(tmp_path / "tiny.gguf"), Tokenizer(json.dumps(document).encode(), fast=False))
