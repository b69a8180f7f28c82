"""The whole pipeline at smoke size: interrupted or not, the same weights; the model loads like any other."""

import dataclasses
import json
from collections import Counter
from itertools import takewhile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mainspring.scorer import Scorer
from mainspring.train.arrays import TrainingData
from mainspring.train.config import Config, Shape, Training
from mainspring.train.dataset import examples, prepare
from mainspring.train.loop import Run
from mainspring.train.pipeline import _finish, _skeleton, _trainable
from mainspring.train.splits import TRAIN, family_split

SOURCES = Path(__file__).parents[2] / "data" / "sources"
SHAPE = Shape(32, 32, 4, num_attention_heads=2, num_key_value_heads=1, linear_heads=2, head_dim=16)
TRAINING = Training(epochs=2.0, share=0.0004, tokens=1024, branches=2, warmup=3, view_tokens=192)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return Config(tmp_path_factory.mktemp("run"), SOURCES, shape=SHAPE, training=TRAINING)


@pytest.fixture(scope="module")
def data(config: Config) -> TrainingData:
    from mainspring.text.bundle import Bundle

    bundle = Bundle.load(_skeleton(config))
    found = examples(SOURCES, share=TRAINING.share)
    return prepare(bundle, found, config.out, limit=TRAINING.view_tokens, progress=lambda _: None)


def test_sources_take_turns() -> None:
    """Held-out rows are kept as they come: in the sources' own order the first source would have them all."""
    talk = list(takewhile(lambda e: len(e.rows) > 50, examples(SOURCES, share=0.02)))
    first = Counter(example.source for example in talk[: len(talk) // 2])
    whole = Counter(example.source for example in talk)
    often = [source for source, count in whole.items() if count >= 20]
    assert len(often) >= 3
    for source in often:
        assert 0.25 < first[source] / whole[source] < 0.75


def test_every_maker_has_rows_in_what_is_trained_on(data: TrainingData) -> None:
    shown = {str(data.groups[number]) for number in set(data.rows.group[data.rows.split == TRAIN].tolist())}
    assert {"rules", "edits", "persona_seen", "persona_forms", "attitudes", "made_up_traits"} <= shown


def run_in(config: Config, data: TrainingData, folder: Path) -> Run:
    folder.mkdir(exist_ok=True)
    run = Run(_trainable(config, _skeleton(config), data), data, TRAINING, folder, "cpu")
    run.look = lambda *_, **__: {}  # type: ignore[method-assign]
    return run


def test_six_steps_equal_three_and_three_bit_for_bit(config: Config, data: TrainingData, tmp_path: Path) -> None:
    whole = run_in(config, data, tmp_path / "whole")
    whole.train(say=lambda _: None, stop_at=6)
    first = run_in(config, data, tmp_path / "cut")
    assert not first.train(say=lambda _: None, stop_at=3)
    second = run_in(config, data, tmp_path / "cut")
    assert second.resume()
    second.train(say=lambda _: None, stop_at=6)
    assert second.place.step == 6
    for name, p in whole.parameters.items():
        assert torch.equal(p, second.parameters[name]), name
        assert torch.equal(whole.average[name], second.average[name]), name


def test_the_next_token_loss_falls_to_its_last_weight(config: Config, data: TrainingData, tmp_path: Path) -> None:
    training = dataclasses.replace(TRAINING, language=1.0, language_last=0.25)
    run = Run(_trainable(config, _skeleton(config), data), data, training, tmp_path, "cpu")
    assert [share.item() for at in (0.0, 0.5, 1.0) for share in run.shares(at)] == [1.0, 0.625, 0.25]


def test_a_next_token_loss_may_begin_with_no_weight(config: Config, data: TrainingData, tmp_path: Path) -> None:
    """It is left out of steps only where its weight is never more than 0."""
    for last in (0.0, 0.25):
        training = dataclasses.replace(TRAINING, language=0.0, language_last=last)
        run = Run(_trainable(config, _skeleton(config), data), data, training, tmp_path, "cpu")
        arrays = [torch.from_numpy(a) for a in run.made(run.plans(0)[0], 0)]
        report, _ = run.losses([*arrays, *run.shares(1.0)])
        assert (report[1].item() > 0) == (last > 0)


def test_hiding_and_keeping_the_best_resume_too(config: Config, data: TrainingData, tmp_path: Path) -> None:
    training = dataclasses.replace(TRAINING, hide=0.3, keep_best=True, muon=True, language=1.0, language_last=0.3)

    def run(name: str) -> Run:
        (tmp_path / name).mkdir(exist_ok=True)
        made = Run(_trainable(config, _skeleton(config), data), data, training, tmp_path / name, "cpu")
        marks = {step: 0.5 + (step * 7 % 5) / 20 for step in range(100)}
        made.look = lambda *_, **__: {"edits_unseen": (marks[made.place.step], 3)}  # type: ignore[method-assign]
        return made

    stop = 24
    whole, first, second = run("whole"), run("cut"), run("cut")
    whole.train(say=lambda _: None, stop_at=stop)
    first.train(say=lambda _: None, stop_at=stop - 7)
    (tmp_path / "kept.pt").write_bytes((tmp_path / "cut" / "checkpoint.pt").read_bytes())
    first.train(say=lambda _: None, stop_at=stop - 2)  # a look or more whose checkpoint is lost
    (tmp_path / "cut" / "checkpoint.pt").write_bytes((tmp_path / "kept.pt").read_bytes())
    assert second.resume()
    second.train(say=lambda _: None, stop_at=stop)
    assert second.best.step == whole.best.step >= 0
    assert second.best.mark == whole.best.mark
    for name, p in whole.parameters.items():
        assert torch.equal(p, second.parameters[name]), name
        assert torch.equal(whole.average[name], second.average[name]), name
    looks = [json.loads(line) for line in whole.log.read_text().splitlines() if "held_out" in line]
    assert len(looks) > 2
    best = max(looks, key=lambda look: (look["held_out"]["edits_unseen"], -look["step"]))
    assert whole.best.step == best["step"] < stop
    _finish(dataclasses.replace(config, out=tmp_path, training=training), whole, _skeleton(config), data)
    kept = torch.load(tmp_path / "whole" / "best.pt", weights_only=True)["weights"]
    assert all(torch.equal(kept[name], p) for name, p in whole.average.items())
    second.take_best()
    assert all(torch.equal(kept[name], p) for name, p in second.average.items())


def test_what_was_kept_early_is_mixed_in_whether_or_not_the_run_was_cut(
    config: Config, data: TrainingData, tmp_path: Path
) -> None:
    training = dataclasses.replace(TRAINING, early=0.4, early_share=0.25, early_mlps=0.4, epochs=0.5)

    def run(name: str, early: float = training.early) -> Run:
        (tmp_path / name).mkdir(exist_ok=True)
        asked = dataclasses.replace(training, early=early)
        made = Run(_trainable(config, _skeleton(config), data), data, asked, tmp_path / name, "cpu")
        made.look = lambda *_, **__: {"edits_unseen": (0.5, 3)}  # type: ignore[method-assign]
        return made

    whole, never = run("whole"), run("never", early=0.0)
    for one in (whole, never):
        one.train(say=lambda _: None)
    last = whole.place.step
    at = next(n for n in range(1, last + 1) if n / whole.count / training.epochs >= training.early)
    assert 2 < at < last - 2
    there = run("there", early=0.0)
    there.train(say=lambda _: None, stop_at=at)
    assert all(torch.equal(there.average[name], kept) for name, kept in whole.early.items())
    assert not never.early
    for stop in (at - 1, at, at + 2):
        first, second = run(f"cut{stop}"), run(f"cut{stop}")
        first.train(say=lambda _: None, stop_at=stop)
        assert second.resume()
        second.train(say=lambda _: None)
        assert all(torch.equal(kept, second.early[name]) for name, kept in whole.early.items())
        assert all(torch.equal(p, second.average[name]) for name, p in whole.average.items())
    end = {name: p.clone() for name, p in whole.average.items()}
    assert any(not torch.equal(end[name], kept) for name, kept in whole.early.items())
    said: list[str] = []
    _finish(dataclasses.replace(config, out=tmp_path, training=training), whole, _skeleton(config), data, said.append)
    shares = {name: 0.1 if ".mlp." in name else 0.25 for name in end}
    assert set(shares.values()) == {0.1, 0.25}
    for name, p in whole.average.items():
        torch.testing.assert_close(p, (1 - shares[name]) * end[name] + shares[name] * whole.early[name])
    assert any("mixed" in line for line in said)
    again = run("whole")  # a finished run asked for again
    assert again.resume()
    assert again.train(say=lambda _: None)
    assert all(torch.equal(p, again.average[name]) for name, p in end.items())


def test_nothing_held_out_is_trained_on(data: TrainingData) -> None:
    trained = set(data.rows.behavior[data.rows.split == TRAIN].tolist())
    assert trained
    assert all(family_split(str(data.behaviors[number])) == TRAIN for number in trained)
    views = {split: set(data.rows.view[data.rows.split == split].tolist()) for split in (0, 1, 2)}
    assert not views[0] & views[1]
    assert not views[0] & views[2]


def test_the_saved_model_is_int8_and_loads(config: Config, data: TrainingData, tmp_path: Path) -> None:
    run = run_in(config, data, tmp_path / "run")
    folder = _finish(config, run, _skeleton(config), data)
    stored = load_file(folder / "model.safetensors")
    assert stored["model.embed_tokens.weight"].dtype == torch.int8
    scorer = Scorer.from_pretrained(folder, threads=1)
    [result] = scorer.score({"input": "Hi", "output": "Hello."}, ["the assistant greets the user"])
    assert result.p_present + result.p_absent + result.p_not_observable == pytest.approx(1, abs=1e-9)
    assert result.familiarity is not None
    assert 0 <= result.familiarity <= 1
