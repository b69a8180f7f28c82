"""The whole pipeline at smoke size: interrupted or not, the same weights; the model loads like any other."""

import dataclasses
import json
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


def test_the_mean_over_looks_of_the_second_half_resumes_and_may_be_the_best(
    config: Config, data: TrainingData, tmp_path: Path
) -> None:
    training = dataclasses.replace(TRAINING, keep_best=True, broad=True, epochs=0.5)

    def run(name: str) -> tuple[Run, list[dict[str, torch.Tensor]]]:
        (tmp_path / name).mkdir(exist_ok=True)
        made = Run(_trainable(config, _skeleton(config), data), data, training, tmp_path / name, "cpu")
        seen: list[dict[str, torch.Tensor]] = []

        def look(*_: object, **__: object) -> dict[str, tuple[float, int]]:
            seen.append({key: p.clone() for key, p in made.average.items()})
            return {"edits_unseen": (0.9 if made.average is made.broad and made.broad_of == 3 else 0.5, 3)}

        made.look, made.looks = look, 8  # type: ignore[method-assign]
        return made, seen

    (whole, seen), (first, _), (second, _) = run("whole"), run("cut"), run("cut")
    whole.train(say=lambda _: None)
    last = whole.place.step
    assert last > 8
    first.train(say=lambda _: None, stop_at=last - last // 4)
    assert 0 < first.broad_of < whole.broad_of
    assert second.resume()
    second.train(say=lambda _: None)
    assert second.broad_of == whole.broad_of >= 3
    assert all(torch.equal(p, second.broad[key]) for key, p in whole.broad.items())
    plain = [seen[i] for i in range(len(seen) - 2 * whole.broad_of, len(seen), 2)]
    for key, p in whole.broad.items():
        assert torch.allclose(p, torch.stack([found[key] for found in plain]).mean(0), atol=1e-6), key
    kept = whole.best.weights()
    assert kept is not None
    for key, p in kept.items():
        assert torch.allclose(p, torch.stack([found[key] for found in plain[:3]]).mean(0), atol=1e-6), key


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
