"""What a report measures, against the same computed plainly, a token at a time."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from mainspring.errors import InputError
from mainspring.text.tokenizer import Tokenizer
from mainspring.train.distill.config import DistillConfig, WriterShape
from mainspring.train.distill.corpus import Corpus
from mainspring.train.distill.generate import Chat
from mainspring.train.distill.report import Judge, held_out_text, report, summary
from mainspring.train.distill.student import empty_student, writer_config
from mainspring.train.distill.teacher import Teacher
from mainspring.train.distill.vocabulary import Turn, Vocabulary, teacher_tokenizer
from mainspring.train.gguf import read_gguf
from mainspring.train.splits import CALIBRATION, TEST, TRAIN
from support.gguf import write_tiny_gguf, write_tiny_sources

SHAPE = WriterShape(64, 64, 2, 2, num_attention_heads=2, num_key_value_heads=1, linear_heads=2, context=256)
TALKS = (
    ("Why is the sky blue?", "Nobody knows, as far as I can say \u201chere\u201d."),
    ("Hi", "Hello there, interesting!", "And then?", "They went to the old house."),
)


class Rig:
    def __init__(self, folder: Path) -> None:
        write_tiny_gguf(folder / "tiny.gguf", layers=2)
        source = read_gguf(folder / "tiny.gguf")
        self.teacher, self.words = Teacher(source), teacher_tokenizer(source)
        own = Tokenizer.load(write_tiny_sources(folder / "sources"), fast=False)
        self.v = Vocabulary.of(source, own)
        self.hidden = (self.turn("system", "Be kind."),)
        self.talks = [
            tuple(self.turn(("user", "assistant")[i % 2], text) for i, text in enumerate(talk)) for talk in TALKS
        ]
        self.judge = Judge(self.teacher, self.v, self.hidden)
        self.model = empty_student(writer_config(SHAPE, self.teacher.shape, self.v.size, self.v.end), 0).fold()[0]

    def turn(self, role: str, text: str) -> Turn:
        return Turn(role, self.words.encode_text(text).tolist())

    @torch.no_grad()
    def teacher_nats(self, talk: tuple[Turn, ...]) -> list[float]:
        """Of the last turn's tokens and its end, each from the text before it alone."""
        v = self.v
        text = [t for turn in (*self.hidden, *talk[:-1]) for t in (*v.opening[turn.role], *turn.tokens, *v.close)]
        text += v.opening["assistant"]
        nats = []
        for token in [*talk[-1].tokens, v.close[0]]:
            rows, _ = self.teacher(torch.tensor([text]))
            nats.append(-float(self.teacher.logits(rows[0, -1]).log_softmax(-1)[token]))
            text.append(token)
        return nats

    @torch.no_grad()
    def writer_nats(self, talk: tuple[Turn, ...]) -> list[float]:
        """The same of the student's tokens; it is told nothing hidden."""
        v = self.v
        text: list[int] = []
        for turn in talk[:-1]:
            text += [v.roles[turn.role], *(piece for token in turn.tokens for piece in v.pieces[token]), v.end]
        text.append(v.roles["assistant"])
        nats = []
        for token in [*(piece for each in talk[-1].tokens for piece in v.pieces[each]), v.end]:
            hidden = self.model.extend(torch.tensor(text), [len(text)], [self.model.new_state(len(text))], update=True)
            nats.append(-float(self.model.logits(hidden[-1:])[0].log_softmax(-1)[token]))
            text.append(token)
        return nats


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    return Rig(tmp_path_factory.mktemp("report"))


def test_the_teachers_loss_is_that_of_the_last_turn_and_its_end(rig: Rig) -> None:
    for talk in rig.talks:
        nats = rig.teacher_nats(talk)
        mean, count = rig.judge.loss(talk)
        assert count == len(nats) == len(talk[-1].tokens) + 1
        assert mean == pytest.approx(sum(nats) / len(nats), rel=1e-4)


def test_bits_a_byte_and_perplexity_of_held_out_replies(rig: Rig) -> None:
    chats = [Chat(talk, TEST) for talk in rig.talks]
    other = (rig.turn("user", "Go on."), rig.turn("assistant", "No, not that one at all."))
    chats += [Chat(other, TRAIN), Chat(other, CALIBRATION)]
    corpus = Corpus.of(chats, rig.v, rig.hidden, 128)
    found = held_out_text(rig.model, rig.judge, corpus, rig.words)
    writer = sum(sum(rig.writer_nats(talk)) for talk in rig.talks)
    teacher = sum(sum(rig.teacher_nats(talk)) for talk in rig.talks)
    tokens = sum(len(talk[-1].tokens) + 1 for talk in rig.talks)
    size = sum(len(talk[-1].encode()) + 1 for talk in TALKS)  # the end counts as a byte
    assert found == pytest.approx(
        {
            "held_out_chats": 2,
            "writer_bits_per_byte": writer / size / math.log(2),
            "teacher_bits_per_byte": teacher / size / math.log(2),
            "teacher_perplexity": math.exp(teacher / tokens),
            "writer_perplexity_per_teacher_token": math.exp(writer / tokens),
        },
        rel=1e-4,
    )
    assert held_out_text(rig.model, rig.judge, Corpus.of(chats[2:], rig.v, rig.hidden, 128), rig.words) == {}


def test_a_run_that_is_not_finished_has_nothing_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run" / "partial").mkdir(parents=True)
    with pytest.raises(InputError, match="no finished model") as found:
        report(DistillConfig(Path("run"), Path("teacher")))  # of a form that a hub's names have
    assert found.value.param == "out"


def test_means_are_over_replies() -> None:
    replies = [
        {"stopped": True, "distinct_4": 1.0, "tokens": 4, "teacher_loss": 1.0},
        {"stopped": False, "distinct_4": 0.5, "tokens": 40, "teacher_loss": 2.0},
        {"stopped": True, "distinct_4": 0.9, "tokens": 16, "teacher_loss": 9.0},
    ]
    found = summary(replies)
    assert found["prompts"] == 3
    assert found["stopped"] == pytest.approx(2 / 3)
    assert found["distinct_4"] == pytest.approx(np.mean([1.0, 0.5, 0.9]))
    assert found["tokens"] == pytest.approx(20)
    assert (found["teacher_loss"], found["teacher_loss_median"]) == (pytest.approx(4), pytest.approx(2))
