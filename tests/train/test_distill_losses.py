"""Losses against a plain computation one token at a time; rounding is what storing does; first weights fit."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mainspring.model.hybrid import Projections
from mainspring.model.quantised import in_groups, quantise_groups, widen_groups
from mainspring.text.tokenizer import Tokenizer
from mainspring.train.distill import losses, triton
from mainspring.train.distill.config import WriterShape
from mainspring.train.distill.corpus import Corpus
from mainspring.train.distill.generate import Chat
from mainspring.train.distill.initial import principal, settle, start_from, tapped_layers
from mainspring.train.distill.losses import Lessons, Texts
from mainspring.train.distill.student import Student, empty_student, through, writer_config
from mainspring.train.distill.teacher import Teacher
from mainspring.train.distill.vocabulary import Marginal, Turn, Vocabulary, teacher_tokenizer
from mainspring.train.gguf import read_gguf
from mainspring.train.network import text_states
from support.gguf import write_tiny_gguf, write_tiny_sources
from support.kernels import ACCURATE, DEVICE, error

SHAPE = WriterShape(64, 64, 2, 2, num_attention_heads=2, num_key_value_heads=1, linear_heads=2, context=256)


class Rig:
    def __init__(self, folder: Path) -> None:
        write_tiny_gguf(folder / "tiny.gguf")
        self.source = read_gguf(folder / "tiny.gguf")
        self.teacher = Teacher(self.source)
        tokenizer = Tokenizer.load(write_tiny_sources(folder / "sources"), fast=False)
        self.vocabulary = Vocabulary.of(self.source, tokenizer)
        words = teacher_tokenizer(self.source)
        say = [
            ("Why is the sky blue?", "Nobody knows, as far as I understand it."),
            ("Hi", "Hello there, interesting!"),
        ]
        chats = [
            Chat((Turn("user", words.encode_text(a).tolist()), Turn("assistant", words.encode_text(b).tolist())), 0)
            for a, b in say
        ]
        hidden = (Turn("system", words.encode_text("Be kind.").tolist()),)
        self.corpus = Corpus.of(chats, self.vocabulary, hidden, 96)
        self.arrays = self.corpus.arrays(np.array([0, 1]), 0.25)
        self.texts = Texts(*(torch.from_numpy(np.ascontiguousarray(a)) for a in self.arrays))
        taps = tapped_layers(self.teacher.shape.layers, SHAPE.num_hidden_layers)
        basis, self.kept = principal(self.teacher, self.texts.teacher, torch.tensor([20, 15]), SHAPE.hidden_size, taps)
        self.lessons = Lessons(self.teacher, Marginal(self.vocabulary), basis, tuple(taps))

    def student(self, **changes: Any) -> Student:
        shape = writer_config(SHAPE, self.teacher.shape, self.vocabulary.size, self.vocabulary.end)
        student = empty_student(shape, 0)
        start_from(student, self.teacher, self.vocabulary, self.lessons.basis, self.kept, **changes)
        return student


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    return Rig(tmp_path_factory.mktemp("losses"))


@torch.no_grad()
def test_losses_equal_a_plain_computation(rig: Rig) -> None:
    student, v, corpus = rig.student(), rig.vocabulary, rig.corpus
    found = rig.lessons(student, rig.texts)
    sums = dict.fromkeys(("divergence", "ahead", "text", "states"), 0.0)
    total = further = stood = 0.0
    for number in range(2):
        own = corpus.aligned.student[number].astype(np.int64)
        state = student.model.new_state()
        rows = student.model.extend(torch.from_numpy(own), [len(own)], [state], update=True)
        spoken = student.model.logits(rows).double().log_softmax(-1)
        embedded = student.model.embed(torch.from_numpy(own[1:]))
        drafts = student.mtp.extend(embedded, rows[:-1], student.mtp.new_state())
        drafted = student.model.logits(drafts).double().log_softmax(-1)
        teacher_rows, taps = rig.teacher(
            torch.from_numpy(corpus.aligned.teacher[number].astype(np.int64))[None], rig.lessons.taps
        )
        states = text_states(
            student.model, student.model.embed.weight, torch.from_numpy(own)[None], torch.tensor([len(own)])
        )
        targets = []
        for at, place in enumerate(corpus.aligned.places[number].tolist()):
            if place >= 0:
                target = torch.zeros(v.size, dtype=torch.float64)
                logits = rig.teacher.logits(teacher_rows[0, place]).double()
                logits[torch.from_numpy(v.first < 0)] = -torch.inf
                for token, p in enumerate(logits.softmax(-1).tolist()):
                    if v.first[token] >= 0:
                        target[v.first[token]] += p
            else:
                target = torch.nn.functional.one_hot(torch.tensor(own[min(at + 1, len(own) - 1)]), v.size).double()
            targets.append(target)
        for at in range(len(own) - 1):
            weight, target = float(rig.arrays.weight[number, at]), targets[at]
            entropy = float(torch.special.entr(target).sum())
            sums["divergence"] += weight * (-float((target * spoken[at]).sum()) - entropy)
            sums["text"] -= weight * float(spoken[at, own[at + 1]])
            total += weight
            if at:
                sums["ahead"] += weight * (-float((target * drafted[at - 1]).sum()) - entropy)
                further += weight
            if (place := corpus.aligned.places[number][at]) >= 0:
                stood += weight
                for above, mine in zip(taps, states, strict=True):
                    alike = torch.cosine_similarity(above[0, place] @ rig.lessons.basis, mine[0, at], dim=0)
                    sums["states"] += weight * (1 - float(alike)) / len(taps)
    assert total > 5
    assert float(found.divergence) == pytest.approx(sums["divergence"] / total, rel=1e-4)
    assert float(found.text) == pytest.approx(sums["text"] / total, rel=1e-4)
    assert float(found.ahead) == pytest.approx(sums["ahead"] / further, rel=1e-4)
    assert float(found.states) == pytest.approx(sums["states"] / stood, rel=1e-4)


@pytest.mark.skipif(DEVICE != "cpu", reason="on a GPU the rig lies on the CPU: test_distill_cuda compares there")
def test_fused_lessons_are_the_plain_ones_with_their_gradients(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the interpreter where there is no GPU; small pieces and rounds, so that there are several."""
    monkeypatch.setattr(losses, "PIECE_TOKENS", 40)
    monkeypatch.setattr(triton, "WORDS", 256)
    fused = dataclasses.replace(rig.lessons)
    object.__setattr__(fused, "_spoken", fused._fused)
    found = []
    for lessons in (rig.lessons, fused):
        student = rig.student()
        sums = lessons(student, rig.texts)
        (sums.divergence + 0.5 * sums.states + 0.3 * sums.ahead).backward()
        found.append((torch.stack(list(sums)).detach(), {n: p.grad for n, p in student.named_parameters()}))
    (plain, wanted), (other, got) = found
    assert error(other, plain) < 10 * ACCURATE
    for name, grad in wanted.items():
        assert error(got[name], grad) < 100 * ACCURATE, name


def test_gradients_reach_every_parameter_and_drafts_leave_the_trunk_alone(rig: Rig) -> None:
    student = rig.student()
    found = rig.lessons(student, rig.texts)
    found.ahead.backward(retain_graph=True)
    touched = {name.split(".")[0] for name, p in student.named_parameters() if p.grad is not None and p.grad.any()}
    assert touched == {"mtp"}
    (found.divergence + found.states).backward()
    missing = [n for n, p in student.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert not missing


def test_rounding_is_what_storing_does_and_gradients_pass(rig: Rig) -> None:
    weight = torch.randn(128, 64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.equal(through(weight, torch.tensor(0.0)), weight)
    rounded = through(weight, torch.tensor(1.0))
    assert (rounded - widen_groups(*quantise_groups(weight.detach()))).abs().max() < 1e-6
    rounded.square().sum().backward()
    assert torch.allclose(weight.grad, 2 * rounded.detach())


def test_the_gate_changes_all_matrices_but_small_ones(rig: Rig) -> None:
    student = rig.student()
    before = {name: m.weight.clone() for name, m in student.named_modules() if hasattr(m, "parametrizations")}
    student.gate.fill_(1.0)
    block = "model.blocks.0.mixer.in_proj"
    after = {name: m.weight for name, m in student.named_modules() if hasattr(m, "parametrizations")}
    for name, module in student.named_modules():
        if name in before and name != "mtp.fc":  # zeros and ones at the start, which four bits hold
            sizes = module.sizes if isinstance(module, Projections) else before[name].shape[:1]
            rounded = any(in_groups(size, before[name].shape[1]) for size in sizes)
            assert torch.equal(before[name], after[name]) != rounded, name
    assert torch.equal(student.embedding(), through(student.model.embed.weight, torch.tensor(1.0)))
    assert not torch.equal(student.embedding(), student.model.embed.weight)
    heads = student.model.config.linear_num_value_heads
    assert torch.equal(before[block][-2 * heads :], after[block][-2 * heads :])
    model, _ = student.fold()
    assert torch.equal(model.blocks[0].mixer.in_proj.weight, before[block])  # stored once, not rounded twice


def test_first_embeddings_are_the_teachers_projected(rig: Rig) -> None:
    student, v = rig.student(), rig.vocabulary
    number = next(n for n, run in enumerate(v.pieces) if len(run) == 1)
    expected = rig.teacher.embed[number] @ rig.lessons.basis
    assert torch.allclose(student.model.embed.weight[v.pieces[number][0]], expected, atol=1e-6)
    basis = rig.lessons.basis
    assert torch.allclose(basis.T @ basis, torch.eye(basis.shape[1]), atol=1e-5)


def test_logits_start_with_a_spread_of_one(rig: Rig) -> None:
    student = rig.student()
    settle(student, rig.texts.student, rig.texts.lengths)
    model = student.model
    inside = torch.arange(rig.texts.student.shape[1]) < rig.texts.lengths[:, None]
    with torch.no_grad():
        rows = model.norm(text_states(model, model.embed.weight, rig.texts.student, rig.texts.lengths)[-1])
        assert float((rows[inside] @ model.embed.weight.T).std()) == pytest.approx(1, rel=0.05)


def test_layers_may_start_at_random(rig: Rig) -> None:
    taken, random = rig.student(), rig.student(layers=False)
    assert torch.equal(taken.model.embed.weight, random.model.embed.weight)
    a, b = (s.model.blocks[0].mlp.down_proj.weight for s in (taken, random))
    assert not torch.allclose(a, b)
