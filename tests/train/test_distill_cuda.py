"""On a GPU: steps are recorded and say what they say as written."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch

from mainspring.text.tokenizer import Tokenizer
from mainspring.train import updates
from mainspring.train.distill import pipeline
from mainspring.train.distill.config import DistillConfig, Distilling, WriterShape, Writing
from mainspring.train.distill.generate import Streams
from mainspring.train.distill.teacher import Teacher
from mainspring.train.distill.vocabulary import Turn, Vocabulary, teacher_tokenizer
from mainspring.train.gguf import read_gguf
from mainspring.train.splits import TRAIN
from support.gguf import write_tiny_gguf, write_tiny_sources

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs are recorded on CUDA devices"),
]
SHAPE = WriterShape(64, 64, 4, num_attention_heads=2, num_key_value_heads=1, linear_heads=2, context=256)
WRITING = Writing(chats=4000, invented=0.3, per_shard=2000, rows=64, capacity=64, share=0.0, follow=0.1)
TRAINING = Distilling(epochs=6.0, tokens=2048, warmup=5, view_tokens=96, looks=3, look_chats=16)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> DistillConfig:
    folder = tmp_path_factory.mktemp("writer")
    write_tiny_gguf(folder / "tiny.gguf", heads=2, kv_heads=1)  # heads wide enough for the tensor units
    return DistillConfig(
        folder / "run", folder / "tiny.gguf", write_tiny_sources(folder / "sources"), SHAPE, WRITING, TRAINING
    )


def test_a_recorded_step_writes_what_the_teacher_finds_likeliest(config: DistillConfig) -> None:
    source = read_gguf(config.teacher)
    v = Vocabulary.of(source, Tokenizer.load(config.sources, fast=False))
    words, teacher = teacher_tokenizer(source), Teacher(source)
    asked = [((Turn("user", words.encode_text(f"Write {n} words.").tolist()),), TRAIN) for n in range(200)]
    greedy = dataclasses.replace(WRITING, least=1.0, follow=0.0)
    streams = Streams(Teacher(source).cuda(), v, greedy, ())
    found = streams.write(asked, 0)
    assert streams.graph is not None
    assert found
    for chat in found[:10]:
        user, reply = chat.turns
        text = [*v.opening["user"], *user.tokens, *v.close, *v.opening["assistant"]]
        for token in [*reply.tokens, v.close[0]]:
            logits = teacher.logits(teacher(torch.tensor([text]))[0][0, -1])
            assert float(logits.max() - logits[token]) < 1e-3  # equals may change places
            text.append(token)


def test_training_records_its_steps_and_the_loss_falls(
    config: DistillConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "LOG_EVERY", 5)
    longer = dataclasses.replace(config, out=tmp_path / "run", training=dataclasses.replace(TRAINING, epochs=20.0))
    assert pipeline.train_writer(longer, device="cuda", say=lambda _: None) is not None
    entries = [json.loads(line) for line in (longer.out / "log.jsonl").read_text().splitlines()]
    losses = [entry["loss"] for entry in entries if "loss" in entry]
    assert len(losses) > 5
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < 0.9 * losses[0]


def test_a_recorded_loss_is_the_loss_as_written(config: DistillConfig, tmp_path: Path) -> None:
    config = dataclasses.replace(config, out=tmp_path / "run")
    assert pipeline.train_writer(config, device="cuda", say=lambda _: None, stop_after_s=0.0) is None
    (config.out / "texts").mkdir(exist_ok=True)
    source = pipeline.open_teacher(config)
    v = Vocabulary.of(source, Tokenizer.load(config.out / "skeleton", fast=False))
    teacher = Teacher(source).to("cuda", torch.bfloat16)
    assert pipeline.write_texts(config, source, teacher, v, (), math.inf, lambda _: None)
    corpus = pipeline.read_texts(config, v, ())
    run = pipeline.make_run(config, source, teacher, v, corpus, "cuda", lambda _: None)
    plan = run.plans(0)[0]
    tensors = [*run._made(plan, 0), *run.shares(0.0)]
    first, second, third = (run.steps(tensors).clone() for _ in range(3))  # as written, recorded, replayed
    assert len(run.steps.graphs) == 1
    for other in (second, third):
        assert torch.allclose(first, other, rtol=2e-2, atol=2e-3)
