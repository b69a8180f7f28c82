"""Streams of text: prompts are fed as they are, rows keep to themselves, what is kept ended and does not loop."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from mainspring.text.tokenizer import Tokenizer
from mainspring.train.distill.config import Writing
from mainspring.train.distill.corpus import Corpus, load_chats, save_chats
from mainspring.train.distill.generate import Chat, Streams, distinct, sample
from mainspring.train.distill.prompts import HELD, TEMPLATES, Prompt, bare, filled, prompts, withheld
from mainspring.train.distill.teacher import Teacher
from mainspring.train.distill.vocabulary import Turn, Vocabulary, teacher_tokenizer
from mainspring.train.gguf import read_gguf
from mainspring.train.splits import TEST, TRAIN
from support.gguf import write_tiny_gguf, write_tiny_sources

GREEDY = Writing(rows=4, capacity=64, least=1.0, follow=0.0, most_asked=20)
Made = tuple[Teacher, Vocabulary, Tokenizer, Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("generate")
    write_tiny_gguf(folder / "tiny.gguf", layers=2)
    source = read_gguf(folder / "tiny.gguf")
    sources = write_tiny_sources(folder / "sources")
    tokenizer = Tokenizer.load(sources, fast=False)
    v = Vocabulary.of(source, tokenizer)
    # It writes at random, and program text would be left out: hardly anything would stay.
    plain = [name.isascii() or name.lstrip("\u0120").isascii() for name in source.fields["tokenizer.ggml.tokens"]]
    v = dataclasses.replace(v, english=v.english | np.array(plain))
    return Teacher(source), v, teacher_tokenizer(source), sources


def starts_of(made: Made, *texts: str) -> list[tuple[tuple[Turn, ...], int]]:
    return [((Turn("user", made[2].encode_text(text).tolist()),), number % 3) for number, text in enumerate(texts)]


QUESTIONS = [f"Write {n} words about number {n * 7}." for n in range(40)]


@pytest.mark.parametrize("told", ["", "Be kind."])
def test_greedy_rows_equal_a_plain_loop_whatever_the_company(made: Made, told: str) -> None:
    """Each kept reply is the teacher's likeliest continuation of its own prompt, token by token."""
    teacher, v, words, _ = made
    hidden = [Turn("system", words.encode_text(told).tolist())] if told else []
    before = [t for turn in hidden for t in (*v.opening["system"], *turn.tokens, *v.close)]
    short = dataclasses.replace(GREEDY, capacity=40 + len(before))
    found = Streams(teacher, v, short, hidden).write(starts_of(made, *QUESTIONS), 0)
    assert 0 < len(found) < len(QUESTIONS)  # some are cut, which must not be kept
    for chat in found:
        user, reply = chat.turns
        text = [*before, *v.opening["user"], *user.tokens, *v.close, *v.opening["assistant"]]
        for token in [*reply.tokens, v.close[0]]:
            likeliest = teacher.logits(teacher(torch.tensor([text]))[0][0, -1]).argmax()
            assert int(likeliest) == token
            text.append(token)
    questions = {tuple(turns[0].tokens): split for turns, split in starts_of(made, *QUESTIONS)}
    assert all(questions[tuple(chat.turns[0].tokens)] == chat.split for chat in found)
    assert len({tuple(chat.turns[0].tokens) for chat in found}) == len(found)


def test_the_same_seed_writes_the_same(made: Made) -> None:
    teacher, v, _, _ = made
    drawn = dataclasses.replace(GREEDY, rows=16, least=0.05, follow=0.8)
    asked = [*starts_of(made, *QUESTIONS), *[((), TRAIN)] * 40]
    first, again, other = (Streams(teacher, v, drawn, ()).write(asked, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert {len(chat.turns) for chat in first} == {2, 4}
    assert all(turn.role == ("user", "assistant")[i % 2] for chat in first for i, turn in enumerate(chat.turns))


def test_what_is_kept_ended_by_itself_in_english_without_loops(made: Made) -> None:
    teacher, v, _, _ = made
    drawn = dataclasses.replace(GREEDY, least=0.02, temperature=2.0)
    streams = Streams(teacher, v, drawn, ())
    found = streams.write(starts_of(made, *QUESTIONS, *(text + "?" for text in QUESTIONS)), 3)
    assert 0 < len(found) < 80
    assert streams.kept == len(found)
    for chat in found:
        tokens = list(chat.turns[1].tokens)
        room = len(v.opening["user"]) + len(chat.turns[0].tokens) + len(v.opening["assistant"])
        assert room + len(tokens) < drawn.capacity
        assert all(v.english[token] and v.first[token] >= 0 for token in tokens)
        assert distinct(tokens) >= 0.9


def test_a_prompt_without_room_for_an_answer_is_left_out(made: Made) -> None:
    teacher, v, _, _ = made
    long = starts_of(made, "word " * 80)
    assert Streams(teacher, v, GREEDY, ()).write([*long, *starts_of(made, *QUESTIONS[:4])], 0) == Streams(
        teacher, v, GREEDY, ()
    ).write(starts_of(made, *QUESTIONS[:4]), 0)


def test_what_goes_on_too_long_is_cut_at_its_own_limit_and_left_out(made: Made) -> None:
    """Rows are freed at the limit: fewer steps than with room to go on, and the same texts but the longer ones."""
    teacher, v, _, _ = made
    asked = starts_of(made, *QUESTIONS)
    free = Streams(teacher, v, GREEDY, ())
    limited = Streams(teacher, v, dataclasses.replace(GREEDY, most_answered=6), ())
    whole, found = free.write(asked, 0), limited.write(asked, 0)
    short = [chat for chat in whole if len(chat.turns[1].tokens) <= 6]
    assert 0 < len(short) < len(whole)
    assert sorted(chat.turns[0].tokens for chat in found) == sorted(chat.turns[0].tokens for chat in short)
    assert limited.steps < free.steps


def test_sampling_keeps_to_what_is_likely_enough() -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05])).expand(4000, 4)
    torch.manual_seed(0)
    drawn = torch.bincount(sample(logits, Writing(temperature=1.0, least=0.2)), minlength=4) / 4000
    assert drawn[3] == 0
    assert (drawn[:3] - torch.tensor([0.5, 0.3, 0.15]) / 0.95).abs().max() < 0.04


def test_runs_that_are_distinct() -> None:
    assert distinct([1, 2, 3]) == 1.0
    assert distinct([1, 2, 3, 4, 5]) == 1.0
    assert distinct([1, 2] * 5) == 2 / 7


def test_held_out_templates_and_fillings(made: Made) -> None:
    found = prompts(made[3], share=0.0)
    split = {prompt.text: prompt.split for prompt in found}
    assert len(split) == len(found) > 1500
    assert {split[text] for template in HELD for text in filled(template, 60)} == {TEST}
    assert sum(part == TRAIN for part in split.values()) > 0.75 * len(split)
    assert not any("{" in text for text in split)
    assert not set(TEMPLATES) & set(HELD)
    assert found == prompts(made[3], share=0.0)


def test_chats_are_kept_as_they_are(tmp_path: Path) -> None:
    chats = [
        Chat((Turn("user", [5, 40_000]), Turn("assistant", [7])), 2),
        Chat((Turn("user", [1]), Turn("assistant", [2]), Turn("user", [3]), Turn("assistant", [4, 4])), 0),
    ]
    save_chats(chats, tmp_path / "000.npz")
    assert load_chats(tmp_path / "000.npz") == chats
    save_chats([], tmp_path / "001.npz")
    assert load_chats(tmp_path / "001.npz") == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000.npz", "001.npz"]


def test_batches_weigh_what_is_to_be_learned(made: Made) -> None:
    v = made[1]
    chats = [Chat((*turns, Turn("assistant", turns[0].tokens[:3])), TRAIN) for turns, _ in starts_of(made, *QUESTIONS)]
    corpus = Corpus.of([*chats, Chat((Turn("user", [5] * 90), Turn("assistant", [6])), TRAIN)], v, (), 64)
    assert len(corpus.split) == 40  # the long one is beyond the limit
    plan = corpus.epoch(0, seed=0, tokens=64 * 7)[0]
    plan = np.concatenate([plan[:5], [-1, -1]])  # filled up
    arrays = corpus.arrays(plan, 0.25)
    assert arrays.student.shape == arrays.weight.shape == arrays.places.shape
    for row, length in enumerate(arrays.lengths.tolist()):
        assert arrays.weight[row].any() == (plan[row] >= 0)
        tokens, weight = arrays.student[row].tolist(), arrays.weight[row].tolist()
        opens = tokens.index(v.roles["assistant"])
        if plan[row] < 0:
            continue
        assert weight[: opens - 1] == [0.25] * (opens - 1)
        assert weight[opens - 1] == 0  # what follows a turn's end is the template's
        assert weight[opens : length - 1] == [1.0] * (length - 1 - opens)
        assert weight[length - 1 :] == [0.0] * (len(weight) - length + 1)
        assert arrays.teacher.shape[1] > arrays.places[row].max()


def test_every_epoch_has_an_order_of_its_own(made: Made) -> None:
    chats = [Chat((*turns, Turn("assistant", turns[0].tokens[:3])), TRAIN) for turns, _ in starts_of(made, *QUESTIONS)]
    corpus = Corpus.of(chats, made[1], (), 64)
    first, again, second = (np.concatenate(corpus.epoch(n, seed=0, tokens=128)) for n in (0, 0, 1))
    assert first.tolist() == again.tolist()
    assert first.tolist() != second.tolist()
    assert sorted(first[first >= 0]) == sorted(second[second >= 0]) == list(range(len(QUESTIONS)))


def test_short_questions_of_its_own_are_left_out(made: Made) -> None:
    streams = Streams(made[0], made[1], GREEDY, ())
    tokens = made[2].encode_text("Why is the sky blue?").tolist()
    assert streams._good(tokens, "user")
    assert not streams._good(tokens[:3], "user")
    assert not streams._good(tokens[:3], "assistant")


def test_what_is_held_out_is_so_in_other_writing_too() -> None:
    held = withheld([Prompt("What is bread?", TEST), Prompt("Hello!", TRAIN)])
    assert bare("what is  bread") in held
    assert bare("Hello!") not in held
    assert bare("What is breadth?") not in held
