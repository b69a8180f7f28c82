"""The writer's pipeline with a tiny random teacher: interrupted or not, the same weights; the model writes."""

import dataclasses
import json
import math
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from mainspring.cli import main
from mainspring.engine.sampling import Sampling
from mainspring.errors import InputError
from mainspring.generator import Generator
from mainspring.model.loading import load_hybrid, load_mtp
from mainspring.text.bundle import Bundle
from mainspring.text.tokenizer import Tokenizer
from mainspring.train import updates
from mainspring.train.distill import pipeline
from mainspring.train.distill.config import DistillConfig, Distilling, WriterShape, Writing
from mainspring.train.distill.corpus import load_chats
from mainspring.train.distill.generate import Chat
from mainspring.train.distill.prompts import Prompt, prompts
from mainspring.train.distill.report import report
from mainspring.train.distill.run import DistillRun
from mainspring.train.distill.student import through
from mainspring.train.distill.teacher import Teacher
from mainspring.train.distill.vocabulary import Turn, Vocabulary, teacher_tokenizer
from mainspring.train.packed import pack
from mainspring.train.splits import CALIBRATION, TEST, TRAIN
from support.gguf import write_tiny_gguf, write_tiny_sources

SHAPE = WriterShape(64, 64, 4, num_attention_heads=2, num_key_value_heads=1, linear_heads=2, context=256)
WRITING = Writing(chats=160, invented=0.3, per_shard=90, rows=24, capacity=64, share=0.0, system="Be kind.")
TRAINING = Distilling(epochs=4.0, tokens=512, warmup=5, view_tokens=96, looks=4, look_chats=8, rounding=0.3)


def silent(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> DistillConfig:
    folder = tmp_path_factory.mktemp("writer")
    write_tiny_gguf(folder / "tiny.gguf")
    pack(folder / "tiny.gguf", folder / "teacher", part_bytes=100_000)
    sources = write_tiny_sources(folder / "sources")
    return DistillConfig(folder / "run", folder / "teacher", sources, SHAPE, WRITING, TRAINING)


@pytest.fixture(scope="module")
def trained(config: DistillConfig) -> Path:
    folder = pipeline.train_writer(config, device="cpu", say=silent)
    assert folder is not None
    return folder


def run_in(config: DistillConfig, folder: Path) -> DistillRun:
    """A run on the texts there are, at its start."""
    folder.mkdir(exist_ok=True)
    source = pipeline.open_teacher(config)
    vocabulary = Vocabulary.of(source, Tokenizer.load(config.out / "skeleton", fast=False))
    corpus = pipeline.read_texts(config, vocabulary, pipeline.hidden_turns(config, source))
    run = pipeline.make_run(config, source, Teacher(source), vocabulary, corpus, "cpu", silent)
    run.folder, run.log, run.best.path = folder, folder / "log.jsonl", folder / "best.pt"
    return run


def test_the_model_is_four_bit_with_a_drafting_head_and_loads(trained: Path) -> None:
    stored = load_file(trained / "model.safetensors")
    assert stored["model.embed_tokens.weight"].dtype == torch.uint8
    assert json.loads((trained / "config.json").read_text())["mtp_num_hidden_layers"] == 1
    model, bundle = load_hybrid(trained), Bundle.load(trained)
    assert load_mtp(trained) is not None
    assert model.config.eos_token_ids == (bundle.tokenizer.control["<|end|>"],)
    assert bundle.tokenizer.vocab_size == model.config.vocab_size


def test_the_loss_falls(config: DistillConfig, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The divergence by a fifth at least, and the states come nearer."""
    monkeypatch.setattr(updates, "LOG_EVERY", 5)
    longer = dataclasses.replace(config, training=dataclasses.replace(TRAINING, epochs=20.0))
    run = run_in(longer, tmp_path / "run")
    run.train(say=silent, stop_at=40)
    entries = [json.loads(line) for line in run.log.read_text().splitlines() if '"loss"' in line]
    assert len(entries) == 8
    assert entries[-1]["loss"] < 0.8 * entries[0]["loss"]
    assert entries[-1]["states"] < entries[0]["states"]
    assert entries[-1]["ahead"] < entries[0]["ahead"]


def test_cut_between_shards_and_steps_it_ends_with_the_same_weights(
    config: DistillConfig, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = dataclasses.replace(config, out=tmp_path / "again")
    assert pipeline.train_writer(again, device="cpu", say=silent, stop_after_s=0.0) is None
    assert pipeline.train_writer(again, device="cpu", say=silent, stop_after_s=0.0) is None  # not even a shard
    made = sorted((config.out / "texts").glob("*.npz"))
    assert len(made) == 2
    (again.out / "texts" / made[0].name).write_bytes(made[0].read_bytes())  # cut after the first
    real = time.monotonic
    ticks = iter(range(10_000))
    monkeypatch.setattr(pipeline.time, "monotonic", lambda: float(next(ticks)))
    assert pipeline.train_writer(again, device="cpu", say=silent, stop_after_s=12.0) is None
    assert (again.out / "checkpoint.pt").is_file()
    assert load_hybrid(again.out / "partial").config.vocab_size > 0
    monkeypatch.setattr(pipeline.time, "monotonic", real)
    assert pipeline.train_writer(again, device="cpu", say=silent) is not None
    for name, before in load_file(trained / "model.safetensors").items():
        assert torch.equal(before, load_file(again.out / "model" / "model.safetensors")[name]), name


def test_six_steps_equal_three_and_three_bit_for_bit(config: DistillConfig, trained: Path, tmp_path: Path) -> None:
    whole, first, second = (run_in(config, tmp_path / name) for name in ("whole", "cut", "cut"))
    whole.train(say=silent, stop_at=6)
    first.train(say=silent, stop_at=3)
    assert second.resume()
    second.train(say=silent, stop_at=6)
    assert second.place.step == 6
    for name, p in whole.parameters.items():
        assert torch.equal(p, second.parameters[name]), name
        assert torch.equal(whole.average[name], second.average[name]), name


def test_cut_while_matrices_are_rounded_and_a_look_is_lost_it_ends_the_same(
    config: DistillConfig, trained: Path, tmp_path: Path
) -> None:
    wanted = torch.load(config.out / "checkpoint.pt", weights_only=True)
    last = wanted["place"]["step"]
    runs = [run_in(config, tmp_path / "cut") for _ in range(3)]
    for run in runs:  # the first look is the best
        run.look = lambda run=run: {"held_out": (1 / run.place.step, 1)}  # type: ignore[method-assign]
    runs[0].train(say=silent, stop_at=last - last // 4)
    kept = (tmp_path / "cut" / "checkpoint.pt").read_bytes()
    first = torch.load(tmp_path / "cut" / "best.pt", weights_only=True)
    assert runs[1].resume()
    runs[1].train(say=silent, stop_at=last - 1)
    (tmp_path / "cut" / "checkpoint.pt").write_bytes(kept)  # the looks since then are in best.pt alone
    assert runs[2].resume()
    assert runs[2].place.step == last - last // 4
    assert float(runs[2].shares(1 - 1 / 4)[1]) == 1
    assert runs[2].train(say=silent)
    for name, p in runs[2].parameters.items():
        assert torch.equal(p, wanted["weights"][name]), name
        assert torch.equal(runs[2].average[name], wanted["average"][name]), name
    best = torch.load(tmp_path / "cut" / "best.pt", weights_only=True)
    assert best["step"] == first["step"] == runs[2].best.step < last - last // 4
    assert all(torch.equal(w, best["weights"][name]) for name, w in first["weights"].items())


def test_the_report_says_what_was_found_and_the_card_repeats_it(config: DistillConfig, trained: Path) -> None:
    found = report(config, asked=6, most=12, say=silent)
    marks = found["marks"]
    assert marks["prompts"] == 6
    assert 0 <= marks["stopped"] <= 1
    assert 0 < marks["tokens"] <= 12
    assert marks["training"]["chats"] > 0
    # Tiny, random and hardly trained, it is worse than its teacher on its teacher's own text.
    assert marks["writer_bits_per_byte"] > marks["teacher_bits_per_byte"] > 0
    samples = json.loads((trained / "report.json").read_text())["samples"]
    card = (trained / "README.md").read_text()
    split = {prompt.text: prompt.split for prompt in prompts(config.sources, share=0.0)}
    assert [split[sample["prompt"]] for sample in samples] == [TEST] * 6
    assert f"{marks['stopped']:.1%}" in card
    assert all(" ".join(sample["prompt"].split()) in card for sample in samples)
    assert report(config, asked=6, most=12, say=silent) == found


@pytest.mark.parametrize("keep", [True, False])
def test_what_is_stored_is_the_average_that_did_best_or_the_last(
    config: DistillConfig, trained: Path, tmp_path: Path, keep: bool
) -> None:
    run = run_in(config, tmp_path)
    run.train(say=silent, stop_at=3)
    best = {name: w.flip(0) for name, w in run.average.items()}
    assert run.best.offer({"held_out": (0.0, 1)}, 3, best)
    wanted = (best if keep else run.average)["model.embed.weight"].clone()
    asked = dataclasses.replace(config, out=tmp_path, training=dataclasses.replace(TRAINING, keep_best=keep))
    folder = pipeline.finish(asked, run, config.out / "skeleton")
    assert (load_hybrid(folder).embed.weight - through(wanted, torch.tensor(1.0))).abs().max() < 1e-6


def test_states_fade_and_matrices_are_rounded_at_the_end(config: DistillConfig, trained: Path, tmp_path: Path) -> None:
    run = run_in(config, tmp_path / "run")
    found = {at: [float(share) for share in run.shares(at)] for at in (0.0, 1 / 6, 1 / 3, 0.69, 0.71, 1.0)}
    assert [found[at][0] for at in (0.0, 1 / 6, 1 / 3, 1.0)] == pytest.approx([1, 0.5, 0, 0], abs=1e-6)
    assert [found[at][1] for at in found] == [0, 0, 0, 0, 1, 1]
    batch = run._made(run.plans(0)[0], 0)
    for rounding in (1.0, 0.0):
        run.losses([*batch, torch.tensor(0.0), torch.tensor(rounding)])
        assert float(run.student.gate) == rounding


def test_looks_are_at_calibration_chats_as_stored_and_marks_at_test_chats(
    config: DistillConfig, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, seen = run_in(config, tmp_path / "run"), []
    plain = run.measured

    def measured(chosen: np.ndarray) -> np.ndarray:
        seen.append(chosen)
        found = plain(chosen)
        assert float(run.student.gate) == 1  # what is stored is what counts
        return found

    monkeypatch.setattr(run, "measured", measured)
    mark, count = run.look()["held_out"]
    assert count == len(seen[0]) <= TRAINING.look_chats
    assert mark < 0
    run.final_marks()
    splits = run.corpus.split
    assert set(splits[seen[0]].tolist()) == {CALIBRATION}
    assert seen[1].tolist() == np.flatnonzero(splits == TEST).tolist()


def test_a_finished_run_is_left_as_it_is(config: DistillConfig, trained: Path) -> None:
    (trained / "note").write_text("a card")
    before = (trained / "model.safetensors").stat().st_mtime_ns
    assert pipeline.train_writer(config, device="cpu", say=silent) == trained
    assert (trained / "model.safetensors").stat().st_mtime_ns == before
    (trained / "note").unlink()


def test_a_held_out_prompt_that_the_teacher_comes_upon_is_not_trained_on(
    config: DistillConfig, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = pipeline.open_teacher(config)
    words = teacher_tokenizer(source)
    asked = next(p for p in prompts(config.sources, share=0.0) if p.split == TEST).text
    shouted, other = asked.upper().rstrip("."), "What do bees do?"
    turns = [Turn("user", words.encode_text(text).tolist()) for text in (asked, shouted, other)]
    reply = Turn("assistant", [50, 51, 52, 53])
    chats = [Chat((turn, reply), TRAIN) for turn in turns] + [Chat((turns[0], reply), TEST)]
    chats.append(Chat((turns[2], reply, turns[1], reply), TRAIN))
    monkeypatch.setattr(pipeline.Streams, "write", lambda *_: chats)
    again = dataclasses.replace(config, out=tmp_path, writing=dataclasses.replace(WRITING, chats=8, per_shard=8))
    vocabulary = Vocabulary.of(source, Tokenizer.load(config.out / "skeleton", fast=False))
    assert pipeline.write_texts(again, source, Teacher(source), vocabulary, (), math.inf, silent)
    assert load_chats(tmp_path / "texts" / "000.npz") == [chats[2], chats[3]]
    known = [Prompt(asked, TEST), Prompt(shouted, TRAIN), Prompt(other, TRAIN)]
    monkeypatch.setattr(pipeline, "prompts", lambda *_, **__: known)
    begun = [(words.decode(before[0].tokens), split) for before, split in pipeline.starts(again, source) if before]
    assert set(begun) == {(asked, TEST), (other, TRAIN)}


def test_it_writes(trained: Path) -> None:
    generator = Generator.from_pretrained(trained, threads=1)
    found = generator.generate("Hello", max_tokens=8, sampling=Sampling(temperature=0.7, seed=1))
    assert 1 <= len(found.tokens) <= 8


def test_the_command_packs_stops_and_goes_on(config: DistillConfig, tmp_path: Path) -> None:
    written = {"out": str(tmp_path / "run"), "teacher": str(tmp_path / "parts"), "sources": str(config.sources)}
    shape = "\n".join(f"{key} = {value}" for key, value in dataclasses.asdict(SHAPE).items() if key != "from_layers")
    lines = [*(f"{key} = {json.dumps(value)}" for key, value in written.items()), "[shape]", shape]
    lines += ["[writing]", "chats = 40", "rows = 8", "capacity = 64", "share = 0.0", "invented = 0.0"]
    lines += ["[training]", "epochs = 1.0", "tokens = 512"]
    path = tmp_path / "tiny.toml"
    path.write_text("\n".join(lines))
    runner = CliRunner()
    packed = runner.invoke(main, ["train", "distill", str(path), "--pack", str(config.out.parent / "tiny.gguf")])
    assert packed.exit_code == 0, packed.output
    assert "1 parts" in packed.output
    cut = runner.invoke(main, ["train", "distill", str(path), "--device", "cpu", "--minutes", "0"])
    assert cut.exit_code == 75, cut.output
    done = runner.invoke(main, ["train", "distill", str(path), "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


def test_held_out_prompts_are_not_trained_on(config: DistillConfig, trained: Path) -> None:
    corpus = run_in(config, config.out).corpus
    texts = {split: set() for split in (0, 1, 2)}  # type: ignore[var-annotated]
    for number, split in enumerate(corpus.split.tolist()):
        tokens = corpus.aligned.student[number].tolist()
        texts[split].add(tuple(tokens[: tokens.index(corpus.end)]))
    assert all(texts.values())
    assert not texts[TRAIN] & (texts[1] | texts[2])
    trains = np.concatenate(corpus.epoch(0, seed=0, tokens=512))
    assert set(corpus.split[trains[trains >= 0]].tolist()) == {TRAIN}
    assert len(trains[trains >= 0]) == (corpus.split == TRAIN).sum()


def test_a_run_folder_of_another_config_is_refused(config: DistillConfig, trained: Path) -> None:
    other = dataclasses.replace(config, training=dataclasses.replace(TRAINING, rate=1.0))
    with pytest.raises(InputError, match="another config"):
        pipeline.train_writer(other, device="cpu", say=silent)
